"""Generation: ask the model every record of a benchmark and write each answer as it comes.

Batches are cut at fixed positions of the manifest, so that a run stopped anywhere and resumed ends with the same
bytes. The model hides behind one function; nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from reweigh.benchmarks.base import Record
from reweigh.errors import ArtifactError, InputError, ReweighError
from reweigh.files.artifacts import sha256_text
from reweigh.files.seals import append_sealed_rows, read_sealed_rows
from reweigh.images import read_image
from reweigh.progress import bar
from reweigh.runs.record import RESPONSES, find_image, run_owner
from reweigh.runtime.answer import Answer
from reweigh.text import replace_surrogates

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Batch:
    """Records that are asked together.

    Attributes:
        start: Position of the first one in the manifest.
        records: What is asked; all have one limit of new tokens.
        pictures: Their pictures.
        seed: Fixes whatever is drawn at random.
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
"""Answers a batch: the one way in which evaluation, comparison, tuning and ablation reach a model."""


def batches(records: Sequence[Record], size: int) -> Iterator[tuple[int, list[Record]]]:
    """Cut records into batches of equal limit, each with the position of its first record."""
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
    """A seed for the batch at a position, so that a resumed run draws what an unbroken one would have drawn."""
    return int(sha256_text(f"{seed}/{start}")[:8], 16)


def open_batch(start: int, records: Sequence[Record], images: Path, seed: int) -> Batch:
    """Read the pictures of some records."""
    pictures = [read_image(find_image(images, record.image)) for record in records]
    return Batch(start, records, pictures, batch_seed(seed, start))


def generate(
    ask: Ask,
    records: Sequence[Record],
    folder: Path,
    *,
    images: Path,
    batch_size: int = 1,
    seed: int = 42,
    show: bool | None = None,
    progress: Any = None,
) -> int:
    """Answer the records that have no answer yet and return how many these were.

    ``progress`` is a bar that several runs advance; without it this run has its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, owner = folder / RESPONSES, run_owner(folder)
    done = answered(path, records, owner)
    if not records:
        append_sealed_rows(path, [], owner=owner)
    new = 0
    with (
        bar("answering", total=len(records), done=done, unit="image", show=show)
        if progress is None
        else nullcontext(progress)
    ) as advanced:
        for start, part in batches(records, batch_size):
            if start + len(part) > done:
                count = answer_batch(ask, open_batch(start, part, images, seed), path, done, owner)
                advanced.update(count)
                new += count
    require_answered(path, records, owner)
    return new


def answer_batch(ask: Ask, batch: Batch, path: Path, done: int, owner: str) -> int:
    """Answer a batch and append the answers that a file of ``done`` answers lacks; return how many these were."""
    texts = _texts(ask(batch), len(batch.records))
    rows = [{"id": record.id, "response": text} for record, text in zip(batch.records, texts, strict=True)]
    rows = rows[max(0, done - batch.start) :]  # a kill may have cut the batch while it was written
    if batch.start and not path.exists():
        raise ArtifactError(
            f"{path} was removed while it was being written", hint="run the same command again"
        )
    append_sealed_rows(path, rows, owner=owner)
    return len(rows)


def require_answered(path: Path, records: Sequence[Record], owner: str) -> None:
    """Make sure that what was written is there: a folder may have been removed or changed under a running command."""
    if not path.exists() or (count := answered(path, records, owner)) != len(records):
        there = "is gone" if not path.exists() else f"holds {count} of {len(records)} answers"
        raise ArtifactError(
            f"{path} {there} although all were written: somebody else changed it",
            hint="run the same command again",
        )


def answered(path: Path, records: Sequence[Record], owner: str) -> int:
    """How many of the records, from the first on, have their answer in a file; one that answers others is refused."""
    if not path.exists():
        return 0
    rows = read_sealed_rows(path, owner=owner)
    if len(rows) > len(records):
        raise ArtifactError(f"{path} holds {len(rows)} responses for {len(records)} records")
    for number, (row, record) in enumerate(zip(rows, records, strict=False)):
        if row.get("id") != record.id:
            raise ArtifactError(
                f"{path}, response {number}, answers {row.get('id')!r}; the manifest has {record.id!r} there",
                hint="the file was altered; choose another folder",
            )
    return len(rows)


def _texts(given: Any, count: int) -> list[str]:
    whole = isinstance(given, list) and len(given) == count
    if not whole or not all(isinstance(one, Answer) and isinstance(one.text, str) for one in given):
        raise ReweighError(f"the model gave {given!r:.200} for {count} prompts; expected as many answers")
    return [replace_surrogates(one.text) for one in given]
