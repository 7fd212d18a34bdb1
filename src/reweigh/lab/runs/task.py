"""What is asked, and how: a benchmark with its records and images, and what a record keeps of a run. Knows no model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_file
from reweigh.lab.runs.record import find_image, make_record, spelled_out
from reweigh.lab.tasks.base import Benchmark, Record, find_benchmark
from reweigh.lab.tasks.open import data_folder, image_folder, open_benchmark
from reweigh.text import Template, escape_bytes

DIGITS = 16
"""Digits of a picture's hash that tell records apart."""


@dataclass(frozen=True)
class Task:
    """A benchmark ready to be asked.

    Attributes:
        bench: The benchmark, which scores the answers.
        records: What is asked.
        images: The folder of the images.
        metadata: What a record keeps: name, options, limit.
        folders: Folders of data and images; answers do not depend on them.
    """

    bench: Benchmark
    records: list[Record]
    images: Path
    metadata: dict[str, Any]
    folders: dict[str, str]

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return str(self.metadata["name"])

    def with_length(self, max_new_tokens: int | None) -> Task:
        """Return the task with another maximum length of answers, which its runs record; None changes nothing."""
        if max_new_tokens is None:
            return self
        return replace(
            self,
            records=[replace(record, max_new_tokens=max_new_tokens) for record in self.records],
            metadata={**self.metadata, "max_new_tokens": max_new_tokens},
        )

    def require(self, figures: tuple[str, ...], why: str) -> None:
        """Refuse a benchmark without certain figures."""
        require_figures(self.name, self.bench.summarize([]).metrics, figures, why)

    def pictures(self) -> dict[str, str]:
        """Return the records by the content of their pictures: a hash, and the first id that has it."""
        found: dict[str, str] = {}
        hashed: dict[str, str] = {}
        for record in self.records:
            if record.image not in hashed:
                hashed[record.image] = sha256_file(find_image(self.images, record.image))[:DIGITS]
            found.setdefault(hashed[record.image], str(record.id))
        return found

    def require_apart(self, tuning: Mapping[str, str], what: str) -> None:
        """Refuse to evaluate on pictures that something was tuned on: ``tuning``, records by the hash of their picture."""
        both = {digest: one for digest, one in self.pictures().items() if digest in tuning} if tuning else {}
        if both:
            digest, one = next(iter(both.items()))
            raise InputError(
                f"{len(both)} of {len(self.records)} records of {self.name} show pictures that {what}, the first is "
                f"{one!r} (there {tuning[digest]!r})",
                hint='evaluate on others; in a truth file, "split": "tuning" keeps a line for tuning',
            )

    def require_records(self) -> None:
        """Refuse a benchmark without records."""
        if not self.records:
            raise InputError(f"{self.name} has no records to answer", hint="check --limit and --option")


def require_figures(name: str, known: Collection[str], figures: tuple[str, ...], why: str) -> None:
    """Refuse a benchmark whose known figures lack one that is needed."""
    if missing := [figure for figure in figures if figure not in known]:
        raise InputError(f"{name} has no {missing[0]}, which {why} needs", hint="-b world, chair or objects")


@dataclass(frozen=True)
class Runs:
    """A task, and how it is answered.

    Attributes:
        task: What is asked.
        model: What a record keeps of the model.
        batch_size: Images to answer at once.
        seed: Seed for sampling.
        template: Prompt template, for processors without one.
    """

    task: Task
    model: Mapping[str, Any]
    batch_size: int = 1
    seed: int = 42
    template: Template | None = None
    _hashed: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def record(self, decoding: Mapping[str, Any]) -> dict[str, Any]:
        """Return everything that answers with a decoder depend on."""
        if not self._hashed:  # the images are hashed once for all runs
            self._hashed.update(
                make_record(
                    benchmark=self.task.metadata,
                    model=self.model,
                    decoding={},
                    records=self.task.records,
                    images=self.task.images,
                    seed=self.seed,
                    folders=self.task.folders,
                )
            )
        settings = {**decoding, "batch_size": self.batch_size, "template": self.template}
        return {**self._hashed, "decoding": spelled_out(settings)}


def open_task(
    name: str,
    data: Path | None = None,
    *,
    images: Path | None = None,
    options: Mapping[str, Any] | None = None,
    limit: int | None = None,
    seed: int = 42,
    drawings: Path | None = None,
) -> Task:
    """Open a benchmark and list its records.

    Args:
        name: The benchmark.
        data: Folder of its files; by default where ``reweigh data`` puts them.
        images: Folder of its images, if they are elsewhere.
        options: Its own options.
        limit: Use only the first records.
        seed: Seed of the sample, if the benchmark samples.
        drawings: Folder for the images of a benchmark that draws them, if ``data`` names none.
    """
    benchmark = find_benchmark(name)
    folder = data_folder(benchmark, drawings if benchmark.draws_images and data is None else data)
    opened = open_benchmark(name, folder, **(options or {}))
    pictures = image_folder(benchmark, folder, images or opened.own_images)
    return Task(
        opened,
        opened.records(limit=limit, seed=seed),
        pictures,
        {"name": name, "options": dict(options or {}), "limit": limit},
        {name: escape_bytes(str(path.resolve())) for name, path in (("data", folder), ("images", pictures))},
    )
