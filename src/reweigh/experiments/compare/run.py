"""Answering: each batch of records goes to every method in turn, in an order that rotates, so that cost is fair.

Each method has a run folder like ``reweigh eval run`` writes, which can be scored and compared by itself. A stopped
comparison goes on where it was. Who answers is given: sessions of this process, or actors elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from PIL.ImageOps import mirror

from reweigh.benchmarks.base import Record
from reweigh.experiments.compare.cost import Cost, measured
from reweigh.files.seals import append_sealed_rows, read_sealed_rows
from reweigh.progress import bar
from reweigh.runs.record import RESPONSES, run_owner
from reweigh.runs.run import Batch, answer_batch, batches, open_batch, require_answered
from reweigh.runs.task import Runs
from reweigh.runtime.answer import Answer

if TYPE_CHECKING:
    from reweigh.engines.transformers.session import Session

COSTS = "costs.jsonl"
WARM_UP_TOKENS = 8

Measured: TypeAlias = tuple[list[Answer], Cost]
Turns: TypeAlias = Callable[[Batch, Sequence[str]], Iterable[tuple[str, Measured]]]
"""Answers a batch with some methods, one after the other in the order given."""


def answer_all(turns: Turns, runs: Runs, folders: Mapping[str, Path], *, show: bool | None = None) -> None:
    """Answer what has no answer yet; ``folders`` are the run folders of the methods."""
    records = runs.task.records
    done = {name: runs.done(folder) for name, folder in folders.items()}
    owners = {name: run_owner(folder) for name, folder in folders.items()}
    total = len(records) * len(folders)
    with bar("comparing", total=total, done=sum(done.values()), unit="answer", show=show) as progress:
        for start, part, names in due(runs, done):
            batch = open_batch(start, part, runs.task.images, runs.seed)
            for name, (answers, cost) in turns(batch, names):
                # the cost comes first: a kill in between leaves a cost that the next try replaces
                row = {"start": start, **cost.to_json()}
                append_sealed_rows(folders[name] / COSTS, [row], owner=owners[name])
                path = folders[name] / RESPONSES
                progress.update(answer_batch(_saying(answers), batch, path, done[name], owners[name]))
    for name, folder in folders.items():
        require_answered(folder / RESPONSES, records, owners[name])


def due(runs: Runs, done: Mapping[str, int]) -> Iterator[tuple[int, list[Record], list[str]]]:
    """The batches that some methods have not answered, with these in the order of their turns.

    ``done`` says for each method how many of its answers are there.
    """
    for turn, (start, part) in enumerate(batches(runs.task.records, runs.batch_size)):
        names = [name for name in done if done[name] < start + len(part)]
        if names:
            first = turn % len(names)
            yield start, part, names[first:] + names[:first]


def _saying(answers: list[Answer]) -> Callable[[Batch], list[Answer]]:
    return lambda _: answers


def in_turns(sessions: Mapping[str, Session], *, template: str | None = None) -> Turns:
    """Answer with sessions of this process."""
    asks = {name: timed(session, template=template) for name, session in sessions.items()}

    def turns(batch: Batch, names: Sequence[str]) -> Iterator[tuple[str, Measured]]:
        for name in names:
            yield name, asks[name](batch)

    return turns


def timed(session: Session, *, template: str | None = None) -> Callable[[Batch], Measured]:
    """Answer batches through a session, in its authors' regime, and tell the cost of each.

    Before the first one it is warmed up on mirrored pictures, since a first batch also pays for what is set up once.
    """
    from reweigh.families.weights import input_device

    cold = [True]

    def ask(batch: Batch) -> Measured:
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
        return answers, Cost(meter.seconds, sum(len(answer.tokens) for answer in answers), meter.peak)

    return ask


def read_costs(folder: Path) -> list[Cost]:
    """The costs of a method's batches, the last try of each."""
    found = read_sealed_rows(folder / COSTS, owner=run_owner(folder)) if (folder / COSTS).exists() else []
    rows = {row["start"]: row for row in found}
    return [Cost(row["seconds"], row["tokens"], row["peak"]) for _, row in sorted(rows.items())]
