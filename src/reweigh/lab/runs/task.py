"""Runs of one benchmark: each configuration has its own folder, where it is answered, resumed and scored.

Shared by `eval`, `compare`, `tune` and `ablate`. Answers come from a function; nothing here knows a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_file
from reweigh.job import parse_shard
from reweigh.lab.runs import score as scoring
from reweigh.lab.runs.record import RECORD, find_image, make_record, open_run, require_run, require_same
from reweigh.lab.runs.results import Scored
from reweigh.lab.runs.run import Ask, RunFolder, generate
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
        metadata: What a record keeps: name, options, limit, shard.
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
        given = self.bench.summarize([]).metrics
        if missing := [name for name in figures if name not in given]:
            raise InputError(
                f"{self.name} has no {missing[0]}, which {why} needs", hint="-b world, chair or objects"
            )

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


@dataclass(frozen=True)
class Runs:
    """How all runs of one command are answered.

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

    def claim(self, folder: Path) -> None:
        """Refuse a folder in which foreign files have the names of a run or its scores."""
        require_run(folder, self.task.records)
        scoring.claim_scores(folder)

    def open(self, folder: Path, decoding: Mapping[str, Any]) -> None:
        """Start a run, or make sure that the folder holds the same one."""
        self.claim(folder)
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
        folder.mkdir(parents=True, exist_ok=True)
        settings = {**decoding, "batch_size": self.batch_size, "template": self.template}
        open_run(folder, {**self._hashed, "decoding": settings}, self.task.records)

    def folder(self, path: Path) -> RunFolder:
        """Return the answers in a folder; those of another benchmark, selection or seed are refused."""
        if (path / RECORD).exists():
            require_same(path, {"benchmark": self.task.metadata, "seed": self.seed})
        return RunFolder(path, self.task.records)

    def answer(self, ask: Ask, folder: Path, decoding: Mapping[str, Any]) -> int:
        """Answer the missing records into a run folder and return the number of new answers."""
        self.open(folder, decoding)
        return generate(
            ask,
            self.task.records,
            folder,
            images=self.task.images,
            batch_size=self.batch_size,
            seed=self.seed,
        )

    def score(self, run: RunFolder) -> Scored:
        """Score a finished run and write items and results into its folder."""
        source = scoring.run_source(run.folder, run.rows).part()
        return scoring.score_into(run.folder, self.task.bench, source)


def open_task(
    name: str,
    data: Path | None = None,
    *,
    images: Path | None = None,
    options: Mapping[str, Any] | None = None,
    limit: int | None = None,
    seed: int = 42,
    shard: str = "1/1",
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
        shard: Part of the records, as i/n.
        drawings: Folder for the images of a benchmark that draws them, if ``data`` names none.
    """
    benchmark = find_benchmark(name)
    folder = data_folder(benchmark, drawings if benchmark.draws_images and data is None else data)
    opened = open_benchmark(name, folder, **(options or {}))
    pictures = image_folder(benchmark, folder, images or opened.own_images)
    index, count = parse_shard(shard)
    return Task(
        opened,
        list(opened.records(limit=limit, seed=seed))[index - 1 :: count],
        pictures,
        {"name": name, "options": dict(options or {}), "limit": limit, "shard": shard},
        {name: escape_bytes(str(path.resolve())) for name, path in (("data", folder), ("images", pictures))},
    )
