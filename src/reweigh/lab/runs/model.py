"""Answer a run with a session, here or on a cluster: the part of a run that needs a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.cluster import Cluster, Pool, Worker, by_number, ray_pool
from reweigh.engines.answer import Answer
from reweigh.files.artifacts import only_one
from reweigh.lab.runs.run import Ask, Batch, due, open_batch
from reweigh.lab.runs.task import Runs
from reweigh.text import Template

if TYPE_CHECKING:
    from reweigh.engines.session import Session


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


def make_ask(session: Session, *, template: Template | None = None) -> Ask:
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


def open_answerer(
    *,
    name: str,
    load: Mapping[str, Any],
    called: str,
    decoder: str,
    options: Mapping[str, Any],
    template: Template | None,
) -> Worker:
    """Open a worker that loads a model with transformers and answers batches with one decoder."""
    from reweigh import rivals
    from reweigh.families.load import load as load_model

    model, processor = load_model(name, **load)
    model.name_or_path = called
    session = rivals.decoder(decoder, model, processor, **options)
    ask = make_ask(session, template=template)
    page = {"model": describe_model(model, processor), "decoding": session.record()}
    return page, lambda task: ask(task[0])


def answer_on(cluster: Cluster, arguments: dict[str, Any], runs: Runs, folder: Path) -> int:
    """Answer the missing records with the actors of a cluster and return the number of new answers.

    ``runs.model`` is completed with the actors' description of the model; ``arguments`` are ``open_answerer``'s.
    """
    with only_one(folder), ray_pool(cluster, open_answerer, arguments) as pool:
        known = replace(runs, model={**runs.model, **pool.described["model"]})
        decoding = pool.described["decoding"]
        return known.answer(ask_workers(pool, known, {folder: decoding}), folder, decoding)


def ask_workers(
    workers: Pool, runs: Runs, folders: Mapping[Path, Mapping[str, Any]]
) -> Callable[[Batch], Any]:
    """Have workers answer the batches that some run folders lack, and return a function that takes a batch's result.

    A worker's task is a batch and the names of these folders. Results come in any order and may be taken in any.

    Args:
        folders: Each with what its record keeps of the decoder.
    """
    done: dict[str, int] = {}
    for folder, decoding in folders.items():
        runs.open(folder, decoding)
        done[folder.name] = len(runs.folder(folder).rows)

    def tasks() -> Iterator[tuple[int, tuple[Batch, list[str]]]]:
        for start, part, names in due(runs.task.records, runs.batch_size, done):
            yield start, (open_batch(start, part, runs.task.images, runs.seed), names)

    take = by_number(workers.unordered(tasks()))
    return lambda batch: take(batch.start)
