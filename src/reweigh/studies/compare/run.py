"""Answering: each batch of records goes to every method in turn, in an order that rotates, so that cost is fair.

Each method has a run folder like ``reweigh eval run`` writes, which can be scored and compared by itself. A stopped
comparison goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.artifacts import append_jsonl, read_jsonl
from reweigh.benchmarks.base import Record
from reweigh.images import read_image
from reweigh.progress import bar
from reweigh.runs.describer import end_tokens
from reweigh.runs.record import RESPONSES, find_image
from reweigh.runs.run import batch_seed, batches
from reweigh.runs.task import Runs
from reweigh.studies.compare.cost import Cost, measured
from reweigh.studies.compare.methods import Method

COSTS = "costs.jsonl"


@dataclass(frozen=True)
class Asked:
    """One batch that was answered."""

    texts: list[str]
    cost: Cost


def answer_all(
    methods: Sequence[Method], runs: Runs, folders: Sequence[Path], *, show: bool | None = None
) -> None:
    """Answer what has no answer yet; ``folders`` are the methods' run folders."""
    records = runs.task.records
    done = [runs.done(folder) for folder in folders]
    total = len(records) * len(methods)
    with bar("comparing", total=total, done=sum(done), unit="answer", show=show) as shown:
        for turn, (start, batch) in enumerate(batches(records, runs.batch_size)):
            due = [i for i in range(len(methods)) if done[i] < start + len(batch)]
            if not due:
                continue
            pictures = [read_image(find_image(runs.task.images, record.image)) for record in batch]
            first = turn % len(due)
            for i in due[first:] + due[:first]:
                seed = batch_seed(runs.seed, start)
                asked = ask(methods[i], batch, pictures, seed=seed, template=runs.template)
                rows = [
                    {"id": one.id, "response": text} for one, text in zip(batch, asked.texts, strict=True)
                ]
                rows = rows[max(0, done[i] - start) :]  # of a batch that a kill cut, the missing rows
                # the cost comes first: a kill in between leaves a cost that the next try replaces
                append_jsonl(folders[i] / COSTS, [{"start": start, **asked.cost.to_json()}])
                append_jsonl(folders[i] / RESPONSES, rows)
                shown.update(len(rows))


def ask(
    method: Method, batch: Sequence[Record], pictures: list[Any], *, seed: int, template: str | None = None
) -> Asked:
    """Put one batch to one method: the same prompts and limits for all, its own regime."""
    import torch

    from reweigh.families.prompts import build_inputs

    model, processor = method.attached.model, method.attached.processor
    prompts = [record.prompt for record in batch]
    inputs = build_inputs(model, processor, pictures, prompts, template=template)
    options: dict[str, Any] = {**method.regime, "max_new_tokens": batch[0].max_new_tokens}
    if not options.get("do_sample"):
        options = {"temperature": None, "top_p": None, "top_k": None, **options}
    torch.manual_seed(seed)
    with torch.no_grad(), method.attached, measured(model.device) as meter:
        output = model.generate(**inputs, **options)
    said = output[:, inputs["input_ids"].shape[1] :]
    texts = processor.batch_decode(said, skip_special_tokens=True)
    clean = [text.strip().encode("utf-8", "replace").decode("utf-8") for text in texts]
    return Asked(clean, Cost(meter.seconds, count_tokens(said, model.generation_config), meter.peak))


def count_tokens(said: Any, config: Any) -> int:
    """Tokens generated, each answer's end token included and the padding behind it left out."""
    ends = end_tokens(config)
    count = 0
    for row in said.tolist():
        stop = next((place + 1 for place, token in enumerate(row) if token in ends), len(row))
        count += stop
    return count


def read_costs(folder: Path) -> list[Cost]:
    """The costs of a method's batches, the last try of each."""
    rows = {row["start"]: row for row in read_jsonl(folder / COSTS)} if (folder / COSTS).exists() else {}
    return [Cost(row["seconds"], row["tokens"], row["peak"]) for _, row in sorted(rows.items())]
