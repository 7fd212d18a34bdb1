"""Read back what scoring wrote into a folder, for pages and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import read_jsonl, require_fields, sha256_file
from reweigh.files.seals import read_sealed
from reweigh.job import PLACES, Job
from reweigh.lab.estimate import Estimate
from reweigh.lab.runs.record import ITEMS, RESPONSES, RESULTS, find_image
from reweigh.lab.tasks.base import Benchmark, Id, Item, Summary, find_benchmark, read_responses
from reweigh.lab.tasks.open import data_folder, image_folder
from reweigh.text import split_thinking


@dataclass(frozen=True)
class Scored:
    """Scored answers: items and figures; the rest only where a folder holds them.

    Attributes:
        items: What was counted in each answer.
        summary: The figures.
        folder: The folder of the scores.
        texts: The answers by id, in the order of the records.
        results: The content of the results file.
        record: The record of the run; None for response files of other tools.
        questions: What the run asked: a row with id, image and prompt for each answer.
    """

    items: list[Item]
    summary: Summary
    folder: Path = Path()
    texts: dict[Id, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] | None = None
    questions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def benchmark(self) -> type[Benchmark]:
        """The class of the benchmark."""
        return find_benchmark(self.summary.benchmark)

    @property
    def judging(self) -> dict[str, Any]:
        """The judge that rated the answers, with its prompt and rules; empty if there was none."""
        scorer = self.summary.scorer
        judge = {key: value for key, value in (scorer.get("judge") or {}).items() if key != "base_url"}
        named = {key: scorer[key] for key in ("rules", "prompt_sha256") if key in scorer}
        return {"judge": judge, **named} if judge else {}

    @property
    def about(self) -> dict[str, Any]:
        """How many records were scored, and how, as a frame keeps it for each benchmark."""
        longest = max((row["max_new_tokens"] for row in self.questions), default=None)
        return {"records": self.summary.n, "new_tokens": longest, "scorer": dict(self.summary.scorer)}

    @property
    def size(self) -> str:
        """How much was scored, in words; a part of a run says so."""
        counted = f"{self.summary.n:,} responses on {self.summary.images:,} images"
        asked = (self.record or {}).get("records", 0)
        return counted if self.summary.n >= asked else f"part of {asked:,} records only: {counted}"

    @property
    def title(self) -> str:
        """Model and decoder in a few words."""
        config = self.results["config"]
        sources = config.get("sources") or ["responses"]
        model = str(config.get("model", {}).get("id") or sources[0]).rstrip("/").rsplit("/", 1)[-1]
        decoder = config.get("decoding", {}).get("decoder")
        return f"{model}, {decoder}" if decoder else model

    def image_finder(
        self, *, data: Path | None = None, images: Path | None = None
    ) -> Callable[[Id], Path | None]:
        """Return a function that finds the image file of an item's id, or None if there is none.

        By default, the folders are those of the run's record, if they still exist.
        """
        benchmark = self.benchmark
        data = data_folder(benchmark, data or existing_folder(self.record, "data"))
        folder = image_folder(benchmark, data, images or existing_folder(self.record, "images"))
        known: dict[Id, list[str]] = {item.id: benchmark.image_names(item.image) for item in self.items}
        known |= {row["id"]: [row["image"]] for row in self.questions}

        def find(identity: Id) -> Path | None:
            for image in known.get(identity, []):
                with suppress(InputError):
                    return find_image(folder, image)
            return None

        return find


def read_scored(folder: Path) -> Scored:
    """Read what scoring wrote into a folder; a file that was altered since is named."""
    if not (folder / RESULTS).is_file() or not (folder / ITEMS).is_file():
        run = Job.is_in(folder)
        raise InputError(
            f"{folder} has no scored run ({ITEMS} and {RESULTS})",
            hint=f"reweigh eval score {folder}" if run else "give a scored run folder",
        )
    again = "score it again: reweigh eval score"
    try:
        results = read_sealed(folder / RESULTS)
        require_fields(results, folder / RESULTS, {"summary": dict, "config": dict, "files": dict})
    except ArtifactError as error:
        raise ArtifactError(error.message, hint=again) from error
    for name, digest in results["files"].items():
        if not (folder / name).is_file() or sha256_file(folder / name) != digest:
            raise ArtifactError(f"{folder / name} was altered after it was scored", hint=again)
    items = [Item.from_json(row) for row in read_jsonl(folder / ITEMS)]
    scored = Scored(items, Summary.from_json(results["summary"]), folder=folder, results=results)
    if not Job.is_in(folder):
        path = folder / RESPONSES
        responses = read_responses(path) if path.is_file() else []
        return replace(scored, texts={row.id: row.text for row in responses})
    job = Job.read(folder)
    rows = job.rows()
    texts = {row["id"]: split_thinking(row["response"])[1] for row in rows}
    return replace(scored, texts=texts, record=job.record, questions=rows)


def existing_folder(record: Mapping[str, Any] | None, name: str) -> Path | None:
    """Return a folder that a run recorded, ``data`` or ``images``, if it still exists."""
    recorded = (record or {}).get(PLACES, {}).get(name)
    return Path(recorded) if recorded is not None and Path(recorded).is_dir() else None


def score_amber(generative: Path, discriminative: Path) -> Estimate:
    """Compute the AMBER score, ((100 - CHAIR) + F1) / 2, from scored run folders of both halves.

    Raises:
        InputError: The folders are not scored runs of the two halves, in this order.
    """
    from reweigh.lab.tasks.amber.discriminative import AMBERDiscriminative, amber_score
    from reweigh.lab.tasks.amber.generative import AMBERGenerative

    runs = read_scored(generative), read_scored(discriminative)
    names = tuple(run.summary.benchmark for run in runs)
    if names != (AMBERGenerative.name, AMBERDiscriminative.name):
        raise InputError(f"these are runs of {' and '.join(names)}", hint="give the generative run first")
    return amber_score(*(run.items for run in runs))
