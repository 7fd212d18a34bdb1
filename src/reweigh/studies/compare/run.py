"""Answering: each batch of records goes to every method in turn, in an order that rotates, so that cost is fair.

Each method has a run folder like ``reweigh eval run`` writes, which can be scored and compared by itself. A stopped
comparison goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL.ImageOps import mirror

from reweigh.engines.answer import Answer
from reweigh.progress import bar
from reweigh.runs.record import RESPONSES, run_owner
from reweigh.runs.run import Ask, Batch, answer_batch, batches, open_batch, require_answered
from reweigh.runs.task import Runs
from reweigh.seals import append_sealed_rows, read_sealed_rows
from reweigh.studies.compare.cost import Cost, measured

if TYPE_CHECKING:
    from reweigh.engines.transformers.session import Session

COSTS = "costs.jsonl"
WARM_UP_TOKENS = 8


def answer_all(
    sessions: Sequence[Session], runs: Runs, folders: Sequence[Path], *, show: bool | None = None
) -> None:
    """Answer what has no answer yet; ``folders`` are the run folders of the sessions."""
    records = runs.task.records
    done = [runs.done(folder) for folder in folders]
    owners = [run_owner(folder) for folder in folders]
    asks = [
        timed(session, folder, template=runs.template)
        for session, folder in zip(sessions, folders, strict=True)
    ]
    total = len(records) * len(sessions)
    with bar("comparing", total=total, done=sum(done), unit="answer", show=show) as progress:
        for turn, (start, part) in enumerate(batches(records, runs.batch_size)):
            due = [i for i in range(len(asks)) if done[i] < start + len(part)]
            if not due:
                continue
            batch = open_batch(start, part, runs.task.images, runs.seed)
            first = turn % len(due)
            for i in due[first:] + due[:first]:
                progress.update(answer_batch(asks[i], batch, folders[i] / RESPONSES, done[i], owners[i]))
    for folder, owner in zip(folders, owners, strict=True):
        require_answered(folder / RESPONSES, records, owner)


def timed(session: Session, folder: Path, *, template: str | None = None) -> Ask:
    """Answer batches through a session, in its authors' regime, and note the cost of each in the run folder.

    Before the first one it is warmed up on mirrored pictures, since a first batch also pays for what is set up once.
    """
    from reweigh.families.weights import input_device

    owner, cold = run_owner(folder), [True]

    def ask(batch: Batch) -> list[Answer]:
        inputs = session.prepare(batch.pictures, batch.prompts, template=template)
        options = {**session.decoder.decoding(), "max_new_tokens": batch.max_new_tokens}
        if cold:
            cold.clear()
            mirrored = session.prepare(
                [mirror(picture) for picture in batch.pictures], batch.prompts, template=template
            )
            few = min(WARM_UP_TOKENS, batch.max_new_tokens)
            session.respond(mirrored, seed=batch.seed, **{**options, "max_new_tokens": few})
        with measured(input_device(session.model)) as meter:
            answers = session.respond(inputs, seed=batch.seed, **options)
        cost = Cost(meter.seconds, sum(len(answer.tokens) for answer in answers), meter.peak)
        # the cost comes first: a kill in between leaves a cost that the next try replaces
        append_sealed_rows(folder / COSTS, [{"start": batch.start, **cost.to_json()}], owner=owner)
        return answers

    return ask


def read_costs(folder: Path) -> list[Cost]:
    """The costs of a method's batches, the last try of each."""
    found = read_sealed_rows(folder / COSTS, owner=run_owner(folder)) if (folder / COSTS).exists() else []
    rows = {row["start"]: row for row in found}
    return [Cost(row["seconds"], row["tokens"], row["peak"]) for _, row in sorted(rows.items())]
