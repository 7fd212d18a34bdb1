"""Generation: ask the model every record of a benchmark and write each answer as it comes.

Batches are cut at fixed positions of the manifest, so that a run that was stopped anywhere and resumed ends with the
same bytes. The model is behind one function; nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from reweigh.engines.answer import Answer
from reweigh.errors import ArtifactError, InputError, ReweighError
from reweigh.files.artifacts import sha256_text
from reweigh.files.seals import append_sealed_rows, read_sealed_rows
from reweigh.images import read_image
from reweigh.lab.runs.record import RESPONSES, find_image, run_owner
from reweigh.lab.tasks.base import Record
from reweigh.progress import bar
from reweigh.text import replace_surrogates

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Batch:
    """Records that are asked together.

    Attributes:
        start: Position of the first one in the manifest.
        records: What is asked; all have the same limit of new tokens.
        pictures: Their pictures.
        seed: Seed of whatever is sampled.
    """

    start: int
    records: Sequence[Record]
    pictures: list[Image]
    seed: int

    @property
    def prompts(self) -> list[str]:
        """Their prompts."""
        return [record.prompt for record in self.records]

    @property
    def max_new_tokens(self) -> int:
        """Their limit."""
        return self.records[0].max_new_tokens


Ask: TypeAlias = Callable[[Batch], list[Answer]]
"""Answers a batch with a model."""


def batches(records: Sequence[Record], size: int) -> Iterator[tuple[int, list[Record]]]:
    """Yield batches of records with the same limit, each with the position of its first record."""
    if size < 1:
        raise InputError(f"batch size {size} is not a positive number")
    start = 0
    for _, group in groupby(records, key=lambda record: record.max_new_tokens):
        same = list(group)
        for offset in range(0, len(same), size):
            part = same[offset : offset + size]
            yield start, part
            start += len(part)


def batch_seed(seed: int, start: int) -> int:
    """Return the seed of the batch at a position, so that a resumed run samples what an unbroken one would have."""
    return int(sha256_text(f"{seed}/{start}")[:8], 16)


def open_batch(start: int, records: Sequence[Record], images: Path, seed: int) -> Batch:
    """Read the pictures of some records."""
    pictures = [read_image(find_image(images, record.image)) for record in records]
    return Batch(start, records, pictures, batch_seed(seed, start))


@dataclass(frozen=True)
class Answered:
    """The answers to a batch, and a note about it (its cost, its edits)."""

    answers: list[Answer]
    note: Mapping[str, Any] = field(default_factory=dict)


Turns: TypeAlias = Callable[[Batch, Sequence[str]], Iterable[tuple[str, Answered]]]
"""Answers a batch for some runs, one after the other in the order given."""


class RunFolder:
    """The answers of a run, read once and again only after something was written.

    Args:
        folder: The run folder.
        records: What is asked.
    """

    def __init__(self, folder: Path, records: Sequence[Record]) -> None:
        self.folder, self.records = folder, records
        self.path, self.owner = folder / RESPONSES, run_owner(folder)
        self._rows: list[dict[str, Any]] | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The answers so far, from the first record on; a file that answers other records is refused."""
        if self._rows is None:
            self._rows = read_answers(self.path, self.records, self.owner)
        return self._rows

    def add(self, batch: Batch, answered: Answered, done: int, notes: str | None = None) -> int:
        """Append the answers of a batch that a file of ``done`` answers lacks; return their number.

        ``notes`` is the file for the note about the batch, if there is one.
        """
        texts = _texts(answered.answers, len(batch.records))
        rows = [{"id": one.id, "response": text} for one, text in zip(batch.records, texts, strict=True)]
        rows = rows[max(0, done - batch.start) :]  # a kill may have cut the batch while it was written
        if batch.start and not self.path.exists():
            raise ArtifactError(
                f"{self.path} was removed while it was being written", hint="run the same command again"
            )
        if notes is not None:
            # The note comes first: after a kill in between, the next attempt replaces it.
            note = {"start": batch.start, **answered.note}
            append_sealed_rows(self.folder / notes, [note], owner=self.owner)
        append_sealed_rows(self.path, rows, owner=self.owner)
        self._rows = None
        return len(rows)

    def finish(self) -> None:
        """Make sure that all answers exist: another program may have changed the folder meanwhile."""
        if not self.records and not self.path.exists():
            append_sealed_rows(self.path, [], owner=self.owner)
        if not self.path.exists() or len(self.rows) != len(self.records):
            there = (
                "is gone"
                if not self.path.exists()
                else f"has {len(self.rows)} of {len(self.records)} answers"
            )
            raise ArtifactError(
                f"{self.path} {there} although all were written: another program changed it",
                hint="run the same command again",
            )


def answer_runs(
    folders: Mapping[str, RunFolder],
    turns: Turns,
    *,
    images: Path,
    batch_size: int,
    seed: int,
    notes: Mapping[str, str] | None = None,
    advance: Callable[[int], Any] = lambda count: None,
) -> int:
    """Answer the missing records of several runs, batch by batch; return the number of new answers.

    ``notes`` are the files for notes about batches, by run; ``advance`` is called with the number of new answers.
    """
    done = {name: len(one.rows) for name, one in folders.items()}
    records = next(iter(folders.values())).records
    new = 0
    for start, part, names in due(records, batch_size, done):
        batch = open_batch(start, part, images, seed)
        for name, answered in turns(batch, names):
            count = folders[name].add(batch, answered, done[name], (notes or {}).get(name))
            advance(count)
            new += count
    for one in folders.values():
        one.finish()
    return new


def due(
    records: Sequence[Record], batch_size: int, done: Mapping[str, int]
) -> Iterator[tuple[int, list[Record], list[str]]]:
    """Yield the batches that some runs have not answered, with these runs in a rotating order.

    ``done`` is the number of answers of each run.
    """
    for turn, (start, part) in enumerate(batches(records, batch_size)):
        names = [name for name in done if done[name] < start + len(part)]
        if names:
            first = turn % len(names)
            yield start, part, names[first:] + names[:first]


def generate(
    ask: Ask,
    records: Sequence[Record],
    folder: Path,
    *,
    images: Path,
    batch_size: int = 1,
    seed: int = 42,
    show: bool | None = None,
) -> int:
    """Answer the missing records of one run and return the number of new answers."""
    folder.mkdir(parents=True, exist_ok=True)
    run = RunFolder(folder, records)

    def turns(batch: Batch, names: Sequence[str]) -> Iterator[tuple[str, Answered]]:
        yield names[0], Answered(ask(batch))

    with bar("answering", total=len(records), done=len(run.rows), unit="image", show=show) as progress:
        return answer_runs(
            {folder.name: run},
            turns,
            images=images,
            batch_size=batch_size,
            seed=seed,
            advance=progress.update,
        )


def read_answers(path: Path, records: Sequence[Record], owner: str) -> list[dict[str, Any]]:
    """Read the answers in a file, which must answer the records from the first on."""
    if not path.exists():
        return []
    rows = read_sealed_rows(path, owner=owner)
    if len(rows) > len(records):
        raise ArtifactError(f"{path} has {len(rows)} responses for {len(records)} records")
    for number, (row, record) in enumerate(zip(rows, records, strict=False)):
        if row.get("id") != record.id:
            raise ArtifactError(
                f"{path}, response {number}, answers {row.get('id')!r}; the manifest has {record.id!r} there",
                hint="the file was altered; choose another folder",
            )
    return rows


def _texts(given: Any, count: int) -> list[str]:
    whole = isinstance(given, list) and len(given) == count
    if not whole or not all(isinstance(one, Answer) and isinstance(one.text, str) for one in given):
        raise ReweighError(f"the model gave {given!r:.200} for {count} prompts; expected as many answers")
    return [replace_surrogates(one.text) for one in given]
