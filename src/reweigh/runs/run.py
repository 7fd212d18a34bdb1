"""Generation: ask the model every record of a benchmark and write each answer as it comes.

Batches are cut at fixed places of the manifest, so that a run stopped anywhere and resumed ends with the same
bytes. The model hides behind one method; nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from reweigh.artifacts import append_jsonl, read_jsonl, sha256_text
from reweigh.benchmarks.base import Record
from reweigh.errors import ArtifactError, InputError, ReweighError
from reweigh.images import read_image
from reweigh.progress import bar
from reweigh.runs.record import RESPONSES, find_image

if TYPE_CHECKING:
    from PIL.Image import Image


class Describer(Protocol):
    """Whatever answers questions about images."""

    def describe(
        self, images: list[Image], prompts: list[str], *, max_new_tokens: int, seed: int
    ) -> list[str]:
        """Answer each prompt about its image; ``seed`` fixes whatever is drawn at random."""
        ...


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


Ask: TypeAlias = "Callable[[int, Sequence[Record], list[Image], int], list[str]]"
"""Answers a batch, given the position of its first record, its records, their pictures and a seed."""


def asking(describer: Describer) -> Ask:
    """A describer as a function of batches."""

    def ask(start: int, batch: Sequence[Record], pictures: list[Image], seed: int) -> list[str]:
        prompts = [record.prompt for record in batch]
        return describer.describe(pictures, prompts, max_new_tokens=batch[0].max_new_tokens, seed=seed)

    return ask


def generate(
    describer: Describer | Ask,
    records: Sequence[Record],
    folder: Path,
    *,
    images: Path,
    batch_size: int = 1,
    seed: int = 42,
    show: bool | None = None,
    shown: Any = None,
) -> int:
    """Answer the records that have no answer yet and return how many these were.

    ``shown`` is a bar that several runs advance; without it this run has its own.
    """
    ask = describer if callable(describer) else asking(describer)
    path = folder / RESPONSES
    done = answered(path, records)
    if not records:
        append_jsonl(path, [])
    new = 0
    with (
        bar("answering", total=len(records), done=done, unit="image", show=show)
        if shown is None
        else nullcontext(shown)
    ) as advanced:
        for start, batch in batches(records, batch_size):
            if start + len(batch) <= done:
                continue
            pictures = [read_image(find_image(images, record.image)) for record in batch]
            texts = _texts(ask(start, batch, pictures, batch_seed(seed, start)), len(batch))
            rows = [{"id": record.id, "response": text} for record, text in zip(batch, texts, strict=True)]
            # Of a batch that a kill cut while it was written, only the missing rows are added.
            rows = rows[max(0, done - start) :]
            append_jsonl(path, rows)
            advanced.update(len(rows))
            new += len(rows)
    return new


def answered(path: Path, records: Sequence[Record]) -> int:
    """How many of the records, from the first on, have their answer in a file; one that answers others is refused."""
    if not path.exists():
        return 0
    rows = read_jsonl(path)
    if len(rows) > len(records):
        raise ArtifactError(f"{path} holds {len(rows)} responses for {len(records)} records")
    for place, (row, record) in enumerate(zip(rows, records, strict=False)):
        if row.get("id") != record.id:
            raise ArtifactError(
                f"{path}, response {place}, answers {row.get('id')!r}; the manifest has {record.id!r} there",
                hint="the file was altered; choose another folder",
            )
    return len(rows)


def _texts(given: Any, count: int) -> list[str]:
    if not isinstance(given, list) or len(given) != count or not all(isinstance(text, str) for text in given):
        raise ReweighError(f"the model gave {given!r:.200} for {count} prompts; expected as many texts")
    # A byte-level tokenizer can leave half a surrogate pair, which no file can carry.
    return [text.encode("utf-8", "replace").decode("utf-8") for text in given]
