"""The paper's protocol as a list of commands: what each needs, what is missing, and how long it may take.

Calibrate on 500 images of COCO's train2014 (seed 4242) and tune on 500 others (seed 42), then compare ReWEIGH with the five
rivals on 500 images of val2014 and on AMBER, MMHal-Bench and MM-Vet, ablate it, compute every analysis.
Each step is a command that a person could type and that resumes by itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.files.outputs import write_output
from reweigh.images import read_image
from reweigh.lab.paper.published import REFERENCE, published
from reweigh.lab.paper.study import Entry
from reweigh.lab.runs.record import find_image
from reweigh.lab.tasks.base import Record, find_benchmark
from reweigh.lab.tasks.chair.benchmark import CHAIR
from reweigh.lab.tasks.chair.truth import sample_images
from reweigh.lab.tasks.coco import Coco
from reweigh.lab.tasks.data import find_files
from reweigh.lab.tasks.open import data_folder
from reweigh.lab.views.table import Cell, Column, Table

METHODS = {
    "base": "Base",
    "vcd": "VCD",
    "opera": "OPERA",
    "dola": "DoLa",
    "pai": "PAI",
    "revisit": "ReVisiT",
    "reweigh": "ReWEIGH",
}
"""The decoders of the paper's tables, and what it calls them."""
IMAGES, TUNING_SEED, CALIBRATION_SEED = 500, 42, 4242
LAYERS = (-3, -2, -1)
POINTS = 18
"""Runs of a search: three layers, five betas and a midpoint."""
ARMS = 21
"""Runs of an ablation: the base, the full method, nine arms and ten permutations."""
ANALYSES = 12
"""Runs that the analyses add, roughly: both corpora, and the studies that answer the records again."""
AMBER = {"amber-generative": 1004, "amber-discriminative": 14216}
JUDGED = {"mmhal": 96, "mmvet": 218}


@dataclass(frozen=True)
class Step:
    """One command of the protocol.

    Attributes:
        name: What the step is called.
        command: Arguments of ``reweigh``.
        descriptions: How many long answers it takes, in greedy ones.
        words: How many answers of a word it takes, in greedy ones.
        missing: What it lacks, if it cannot run.
    """

    name: str
    command: tuple[str, ...]
    descriptions: float = 0.0
    words: float = 0.0
    missing: str | None = None


@dataclass(frozen=True)
class Pace:
    """Measured seconds of a greedy description, and of an answer of one word."""

    description: float
    word: float

    def hours(self, step: Step) -> float:
        """Estimate the hours of a step."""
        return (step.descriptions * self.description + step.words * self.word) / 3600


@dataclass(frozen=True)
class Protocol:
    """What is reproduced.

    Attributes:
        model: Hub id or folder.
        coco: Folder with train2014, val2014 and annotations.
        out: Where everything goes.
        amber: Folder of AMBER; by default that of ``reweigh data``.
        judge: Options of the judge for ``reweigh eval score``; without a judge, MMHal-Bench and MM-Vet are left out.
        limit: Fewer images for each part, for a trial.
        tokens: Shorter answers, for a trial.
        options: Further options of every command that loads the model.
    """

    model: str
    coco: Path
    out: Path
    amber: Path | None = None
    judge: Sequence[str] | None = None
    limit: int | None = None
    tokens: int | None = None
    options: Sequence[str] = ()

    @property
    def manifest(self) -> Path:
        """The list of calibration images."""
        return self.out / "calibration.txt"

    @property
    def images(self) -> int:
        """Images of each part."""
        return min(IMAGES, self.limit or IMAGES)

    def chair(self) -> list[str]:
        """Return the options that select COCO's images."""
        own = ["-b", "chair", "--data", str(self.coco)]
        if not find_files(self.coco, "synonyms.txt"):
            own += ["--option", f"synonyms={data_folder(find_benchmark('chair')) / 'synonyms.txt'}"]
        return [*own, *self._limited()]

    def _limited(self) -> list[str]:
        return [*([] if self.limit is None else ["--limit", str(self.limit)]), *self._short()]

    def _short(self) -> list[str]:
        return [] if self.tokens is None else ["--max-new-tokens", str(self.tokens)]

    def draw(self) -> list[Path]:
        """Draw the calibration images, none of which is tuned on, and write their list."""
        tuned = {
            record.id
            for record in CHAIR(self.coco, split="train").records(limit=self.limit, seed=TUNING_SEED)
        }
        named = Coco(self.coco, split="train").image_file["train"]
        files = {identity: name for identity, name in named.items() if identity not in tuned}
        if not files:
            raise InputError(
                f"every training image in {self.coco} is used for tuning", hint="use all of train2014"
            )
        chosen = sample_images(files, count=IMAGES, seed=CALIBRATION_SEED)[: self.images]
        paths = [find_image(self.coco, files[identity]).resolve() for identity in chosen]
        write_output(self.manifest, "".join(f"{path}\n" for path in paths))
        return paths

    def steps(self) -> list[Step]:
        """List every step in its order, also those that cannot run."""
        lacks = self.missing()
        return [replace(one, missing=lacks or one.missing) for one in self._steps()]

    def _steps(self) -> Iterator[Step]:
        model, n, factors = self.model, self.images, latencies()
        ours, every = factors["reweigh"], sum(factors.values())
        table, study = self.out / "table", self.out / "study"
        chair, chosen, methods = self.chair(), ["-t", str(table), *self.options], ["-m", ",".join(METHODS)]

        layers = [part for layer in LAYERS for part in ("--layer", str(layer))]
        read = [str(self.manifest), *layers, *self._short(), *self.options]
        yield Step("calibrate", ("calibrate", model, *read, "-o", str(table)), n)
        tuning = ("tune", model, *chair, *chosen, "-o", str(study / "tuning"))
        yield Step("tune", tuning, n * (1 + POINTS * ours))
        compare = ("compare", model, *chair, *methods, *chosen, "-o", str(study / "comparison"))
        yield Step("chair", compare, n * every)
        yield self._amber(methods, chosen, every)
        yield from self._judged(chosen, factors)
        ablation = ("ablate", model, *chair, *chosen, "-o", str(self.out / "ablation"))
        yield Step("ablate", ablation, n * ARMS * ours)
        finished = (self.out / name for name in ("ablation", "amber", "judged"))
        results = (*finished, study / "comparison")
        shown = [part for folder in results for part in ("--results", str(folder)) if folder.is_dir()]
        given = ["--calibration", str(self.manifest), "--paper", "-o", str(study), *shown]
        yield Step("study", ("study", "all", model, *chair, *given, *chosen), n * ANALYSES)

    def _amber(self, methods: Sequence[str], chosen: Sequence[str], factor: float) -> Step:
        folder = self.amber or data_folder(find_benchmark("amber-generative"))
        there = find_files(folder, "annotations.json")
        lacks = f"annotations.json of AMBER in {folder} (reweigh data amber, or --amber DIR)"
        asked = [part for name in AMBER for part in ("-b", name)]
        data = [] if self.amber is None else ["--data", str(self.amber)]
        given = [*asked, *methods, *data, *self._limited(), *chosen, "-o", str(self.out / "amber")]
        long, short = (min(count, self.limit or count) * factor for count in AMBER.values())
        return Step("amber", ("compare", self.model, *given), long, short, None if there else lacks)

    def _judged(self, chosen: Sequence[str], factors: dict[str, float]) -> Iterator[Step]:
        """Answer and rate MMHal-Bench and MM-Vet with every method."""
        for name, count in JUDGED.items():
            folder = data_folder(find_benchmark(name))
            why = "a judge (--judge)" if self.judge is None else None
            why = why if folder.is_dir() else f"{folder} (reweigh data {name})"
            for method in METHODS:
                run = str(self.out / "judged" / name / method)
                own = chosen if method == "reweigh" else self.options
                asked = ("-b", name, "--decoder", method, *self._limited(), *own, "-o", run)
                many = min(count, self.limit or count) * factors[method]
                yield Step(f"{name} {method}", ("eval", "run", self.model, *asked), many, missing=why)
                yield Step(f"rate {name} {method}", ("eval", "score", run, *(self.judge or ())), missing=why)

    def missing(self) -> str | None:
        """Say what the folder of COCO lacks."""
        for split in ("train2014", "val2014"):
            if not (self.coco / split).is_dir():
                return f"{self.coco / split}"
        for split in ("train2014", "val2014"):
            for kind in ("captions", "instances"):
                if not find_files(self.coco, f"{kind}_{split}.json"):
                    return f"{kind}_{split}.json in {self.coco}"
        folders = (self.coco, data_folder(find_benchmark("chair")))
        known = any(find_files(folder, "synonyms.txt") for folder in folders)
        return None if known else "synonyms.txt (reweigh data chair)"


def latencies() -> dict[str, float]:
    """Return the published time per token of each method, relative to greedy decoding."""
    known = published()["tab:chair-amber"].values[REFERENCE]
    return {name: known[Entry(title, "Latency")].number for name, title in METHODS.items()}


def measure_pace(session: Any, pictures: Sequence[Path], *, prompt: str, tokens: int, seconds: float) -> Pace:
    """Describe pictures for about so many seconds, and measure what a description and a single word take."""
    begin, count = time.perf_counter(), 0
    for count, path in enumerate(pictures, 1):  # noqa: B007
        session.describe(read_image(path), prompt, max_new_tokens=tokens)
        if time.perf_counter() - begin > seconds:
            break
    described = time.perf_counter() - begin
    begin = time.perf_counter()
    for path in pictures[:count]:
        session.describe(read_image(path), prompt, max_new_tokens=1)
    return Pace(described / count, (time.perf_counter() - begin) / count)


def plan_table(steps: Sequence[Step], pace: Pace | None) -> Table:
    """List what will be run, and how long it may take."""
    columns = [Column("step"), Column("hours", digits=2, ranked=False), Column("command")]
    rows: list[list[Cell]] = [
        [one.name, None if pace is None else pace.hours(one), f"reweigh {' '.join(one.command)}"]
        for one in steps
        if one.missing is None
    ]
    return Table(columns, rows)


def left_out(steps: Sequence[Step]) -> list[str]:
    """List what will not be run, a line for each thing that is missing."""
    reasons = dict.fromkeys(one.missing for one in steps if one.missing is not None)
    named = {why: ", ".join(one.name for one in steps if one.missing == why) for why in reasons}
    return [f"left out: {names}; missing: {why}" for why, names in named.items()]


def first_record(protocol: Protocol) -> Record:
    """Return the first record that is tuned on, whose prompt and limit all descriptions share."""
    return CHAIR(protocol.coco, split="train").records(limit=1, seed=TUNING_SEED)[0]
