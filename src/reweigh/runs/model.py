"""Answer a run with a loaded model and any decoder by name: the part of a run that needs torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.cluster import Cluster, Pool, Tasks, by_number, ray_pool
from reweigh.files.artifacts import only_one
from reweigh.runs.run import Ask, Batch, batches, open_batch
from reweigh.runs.task import Runs
from reweigh.runtime.answer import Answer

if TYPE_CHECKING:
    from reweigh.engines.transformers.session import Session
    from reweigh.runs.run import Ask, Batch


def describe_model(model: Any, processor: Any) -> dict[str, Any]:
    """Return what the record keeps of a loaded model: its identity by content, device, types and attention."""
    from reweigh.families.anatomy import find_anatomy
    from reweigh.families.identity import identify
    from reweigh.families.weights import input_device

    weight = next(model.parameters())
    return {
        "identity": identify(find_anatomy(model), processor).summary(),
        "device": input_device(model).type,
        "weights_dtype": str(weight.dtype).removeprefix("torch."),
        "attention": getattr(model.config, "_attn_implementation", None),
    }


def open_session(model: Any, processor: Any, decoder: str, options: Mapping[str, Any]) -> Session:
    """Tie a named decoder to a model."""
    from reweigh.rivals import decoder as make

    return make(decoder, model, processor, **options)


def make_ask(session: Session, *, template: str | None = None) -> Ask:
    """Make the function that answers batches with a session, as the decoder's authors decode."""

    def ask(batch: Batch) -> list[Answer]:
        return session.answer(
            batch.pictures,
            batch.prompts,
            template=template,
            seed=batch.seed,
            max_new_tokens=batch.max_new_tokens,
            **session.decoder.decoding(),
        )

    return ask


class Answerer:
    """Answers batches with a decoder inside an actor."""

    def __init__(self, about: Mapping[str, Any], decoding: Mapping[str, Any], ask: Ask) -> None:
        self.page = {"model": dict(about), "decoding": dict(decoding)}
        self.ask = ask

    def describe(self) -> dict[str, Any]:
        """Return what the record of a run keeps of model and decoder."""
        return self.page

    def work(self, task: Batch) -> list[Answer]:
        """Answer one batch."""
        return self.ask(task)


def answerer(
    *,
    name: str,
    load: Mapping[str, Any],
    called: str,
    decoder: str,
    options: Mapping[str, Any],
    template: str | None,
) -> Answerer:
    """Make a worker that loads a model with transformers and ties a decoder to it."""
    from reweigh.families.load import load as load_model

    model, processor = load_model(name, **load)
    model.name_or_path = called
    session = open_session(model, processor, decoder, options)
    return Answerer(describe_model(model, processor), session.record(), make_ask(session, template=template))


def answer_on(cluster: Cluster, arguments: dict[str, Any], runs: Runs, folder: Path) -> int:
    """Answer the missing records with the actors of a cluster and return the number of new answers.

    ``runs.model`` is completed with the actors' description of the model; ``arguments`` are those of ``answerer``.
    """
    with only_one(folder), ray_pool(cluster, answerer, arguments) as pool:
        known = replace(runs, model={**runs.model, **pool.described["model"]})
        decoding = pool.described["decoding"]
        known.open(folder, decoding)
        return known.answer(
            ask_workers(pool, waiting(known, len(known.folder(folder).rows))), folder, decoding
        )


def waiting(runs: Runs, done: int) -> Iterator[tuple[int, Batch]]:
    """Open the batches of a run that lack answers one by one, each with its position."""
    for start, part in batches(runs.task.records, runs.batch_size):
        if start + len(part) > done:
            yield start, open_batch(start, part, runs.task.images, runs.seed)


def ask_workers(workers: Pool, tasks: Tasks) -> Ask:
    """Answer batches in order from results that arrive in any order."""
    take = by_number(workers.unordered(tasks))
    return lambda batch: take(batch.start)
