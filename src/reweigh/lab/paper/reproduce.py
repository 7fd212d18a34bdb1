"""The paper's protocol as a list of commands: what each needs, what is missing, and how long it may take.

Calibrate on 500 images of COCO's train2014 (seed 4242) and tune on 500 others (seed 42), then compare ReWEIGH with the five
rivals on 500 images of val2014 and on AMBER, MMHal-Bench and MM-Vet, ablate it, compute every analysis.
Each step is a command that a person could type and that resumes by itself.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reweigh.errors import InputError, ReweighError, require_known
from reweigh.files.outputs import write_output
from reweigh.images import read_image
from reweigh.lab.paper.protocol import protocol as settings
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
"""Blocks to search on a model that is none of the paper's."""
ROOM = 5_000_000_000
"""Bytes that a whole run takes, about: tables, corpora and answers."""
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
        judge: Options of the judge for ``reweigh eval score``; without a judge, MMHal-Bench and MM-Vet are left out.
        limit: Fewer images for each part, for a trial.
        tokens: Shorter answers, for a trial.
        options: Further options of every command that loads the model.
    """

    model: str
    coco: Path
    out: Path
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

        paper = settings().model(model)
        searched = LAYERS if paper is None else paper[1].layers
        layers = [part for layer in searched for part in ("--layer", str(layer))]
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
        own = self.coco / "AMBER"
        folder = own if own.is_dir() else data_folder(find_benchmark("amber-generative"))
        files = [name for name in ("annotations.json", "AMBER_1.jpg") if not find_files(folder, name)]
        lacks = f"{' and '.join(files)} of AMBER in {folder} (reweigh data amber, or AMBER beside train2014)"
        asked = [part for name in AMBER for part in ("-b", name)]
        data = ["--data", str(own)] if own.is_dir() else []
        given = [*asked, *methods, *data, *self._limited(), *chosen, "-o", str(self.out / "amber")]
        long, short = (min(count, self.limit or count) * factor for count in AMBER.values())
        return Step("amber", ("compare", self.model, *given), long, short, lacks if files else None)

    def _judged(self, chosen: Sequence[str], factors: dict[str, float]) -> Iterator[Step]:
        """Answer and rate MMHal-Bench and MM-Vet with every method."""
        for name, count in JUDGED.items():
            folder = data_folder(find_benchmark(name))
            why = "a judge (--judge-option model=NAME)" if self.judge is None else None
            why = why if folder.is_dir() else f"{folder} (reweigh data {name})"
            for method in METHODS:
                run = str(self.out / "judged" / name / method)
                own = chosen if method == "reweigh" else self.options
                asked = ("-b", name, "--decoder", method, *self._limited(), *own, "-o", run)
                many = min(count, self.limit or count) * factors[method]
                yield Step(f"{name} {method}", ("eval", "run", self.model, *asked), many, missing=why)
                yield Step(f"rate {name} {method}", ("eval", "score", run, *(self.judge or ())), missing=why)

    def missing(self) -> str | None:
        """Say all that the folder of COCO lacks."""
        splits = ("train2014", "val2014")
        lacks = [str(self.coco / split) for split in splits if not (self.coco / split).is_dir()]
        for split in splits:
            files = [f"{kind}_{split}.json" for kind in ("captions", "instances")]
            lacks += [f"{file} in {self.coco}" for file in files if not find_files(self.coco, file)]
        folders = (self.coco, data_folder(find_benchmark("chair")))
        if not any(find_files(folder, "synonyms.txt") for folder in folders):
            lacks.append("synonyms.txt (reweigh data chair)")
        return ", ".join(lacks) or None

    def warnings(self) -> list[str]:
        """Say what else may stop a step or change its numbers: language data, the judge's key, disk."""
        return [*_language(), *_judge(self.judge), *_disk(self.out)]


def _language() -> Iterator[str]:
    """Try the tools that find objects in captions."""
    from reweigh.lab.tasks.language import language

    try:
        tools = language()
        tools.tags([token.text for token in tools.tokens("A dog runs.")])
    except ReweighError as error:
        yield f"chair and amber need language tools: {error}"
    if find_spec("spacy") is None:
        yield "without spaCy, AMBER matches equal words only (similarity: exact), which its published numbers do not"


def _judge(options: Sequence[str] | None) -> Iterator[str]:
    """Look for the key of the judge."""
    given = dict(one.split("=", 1) for one in options or () if "=" in one)
    key = given.get("key", "OPENAI_API_KEY")
    if options is not None and "url" not in given and not os.environ.get(key):
        yield f"the judge needs its key in the environment variable {key}"


def _disk(out: Path) -> Iterator[str]:
    """Look for the room that a whole run takes."""
    there = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    if (free := shutil.disk_usage(there).free) < ROOM:
        yield f"{there} has {free / 1e9:.1f} GB left; a whole run takes about {ROOM / 1e9:.0f}"


def chosen_steps(steps: Sequence[Step], text: str | None) -> set[str]:
    """Return the steps that a list names; with only names behind a minus, all but these. ``mmhal`` is all of its steps.

    Examples:
        >>> every = [Step("calibrate", ()), Step("chair", ()), Step("mmhal vcd", ()), Step("rate mmhal vcd", ())]
        >>> sorted(chosen_steps(every, "-mmhal,-chair"))
        ['calibrate']
        >>> sorted(chosen_steps(every, "mmhal"))
        ['mmhal vcd', 'rate mmhal vcd']
    """
    named = {one.name: set(one.name.split()) | {one.name} for one in steps}
    wanted = [part.strip() for part in (text or "").split(",") if part.strip()]
    known = sorted({part for parts in named.values() for part in parts})
    require_known("step", [part.removeprefix("-") for part in wanted], known)
    out = {part[1:] for part in wanted if part.startswith("-")}
    only = {part for part in wanted if not part.startswith("-")}
    return {name for name, parts in named.items() if not parts & out and (not only or parts & only)}


def with_methods(command: Sequence[str], methods: Sequence[str]) -> tuple[str, ...]:
    """Return a comparison's command with other methods."""
    place = list(command).index("-m") + 1
    return (*command[:place], ",".join(methods), *command[place + 1 :])


def coverage() -> Table:
    """List every table and figure of the paper with the commands that fill it, or why nothing does."""
    rows: list[list[Cell]] = [
        [label, one.title, "; then ".join(one.run) or one.not_measured or "nothing to measure"]
        for label, one in published().items()
    ]
    return Table([Column("in the paper"), Column("what it shows"), Column("filled by")], rows)


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
        [
            one.name if one.missing is None else f"{one.name} (left out)",
            None if pace is None or one.missing is not None else pace.hours(one),
            f"reweigh {shlex.join(one.command)}",
        ]
        for one in steps
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
