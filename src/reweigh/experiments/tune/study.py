"""The search for an operating point on a model: every point is answered and scored in a folder of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Benchmark, Item, Record, Summary
from reweigh.benchmarks.bootstrap import Array, point
from reweigh.benchmarks.chair.metrics import figures, summarise_metrics
from reweigh.errors import InputError
from reweigh.experiments.experiment import Arm, Experiment, decoder_arm
from reweigh.experiments.tune.search import (
    BASE,
    BETAS,
    BOUND,
    FIGURES,
    RULE,
    Found,
    Quality,
    Tuned,
    Where,
    choose,
    judge,
    midpoint,
    parse_numbers,
    search,
    tuning_frame,
)
from reweigh.experiments.tune.verdicts import Asking, Mentions, known_absents, pools, pseudo_items, trust
from reweigh.experiments.tune.verifier import ModelVerifier, Verifier
from reweigh.images import list_images
from reweigh.method.edit import check_beta
from reweigh.runs.task import Runs, Scored, Task
from reweigh.runtime.memory import EvidenceCache
from reweigh.tables.folders import table_layers
from reweigh.tables.table import ReferenceTable
from reweigh.text import DESCRIBE


@dataclass(frozen=True)
class Grid:
    """Tables by layer, betas, and the bound on F1 in points."""

    tables: Mapping[int, ReferenceTable]
    betas: Sequence[float] = BETAS
    bound: float = BOUND

    @classmethod
    def open(cls, table: str, layers: str | None, betas: str, bound: float) -> Grid:
        """Read comma-separated lists and the tables of the layers; all of the folder's if none is named."""
        strengths = [check_beta(beta) for beta in parse_numbers(betas, float, "betas")]
        blocks = table_layers(Path(table)) if layers is None else parse_numbers(layers, int, "layers")
        return cls(
            {block: ReferenceTable.from_pretrained(table, layer=block) for block in blocks}, strengths, bound
        )

    def chosen_on(self, task: Task, *, limit: int | None, seed: int) -> dict[str, Any]:
        """Return what an operating point records of how it was chosen."""
        length = {name: task.metadata[name] for name in ("max_new_tokens",) if name in task.metadata}
        return {
            "benchmark": task.name,
            "options": task.metadata["options"],
            **length,
            "limit": limit,
            "seed": seed,
            "records": len(task.records),
            "bound": self.bound,
            "rule": RULE,
            "table_sha256": {str(layer): one.fingerprint for layer, one in self.tables.items()},
        }


AnswerPoint = Callable[[int | None, float], Arm]
"""Answers all records at a layer and beta; without a layer as the base model does."""


def tune(
    model: Any,
    processor: Any,
    grid: Grid,
    runs: Runs,
    out: Path,
    *,
    cache: EvidenceCache,
    force: bool = False,
) -> Tuned:
    """Answer and score the base and every point under one bar; evidence is measured once for each layer."""
    scored: dict[Where, Scored] = {}
    with answering(model, processor, grid, runs, out, cache=cache, force=force) as (made, answer):

        def ask(layer: int | None, beta: float) -> Quality:
            scored[layer, beta] = made.score(answer(layer, beta))
            return quality(scored[layer, beta])

        found = search(ask, ask(*BASE), layers=list(grid.tables), betas=grid.betas, bound=grid.bound)
    return Tuned(found, tuning_frame(scored, runs.task.bench.figures, runs.task.name))


@contextmanager
def answering(
    model: Any,
    processor: Any,
    grid: Grid,
    runs: Runs,
    out: Path,
    *,
    cache: EvidenceCache,
    force: bool = False,
) -> Iterator[tuple[Experiment, AnswerPoint]]:
    """Yield an experiment and a function that answers all records at one point, under one bar for the search."""
    made = Experiment(runs, [], out / "runs", what="tuning")

    def answer(layer: int | None, beta: float) -> Arm:
        name, decoder, options = "base", "base", {}
        if layer is not None:
            name, decoder = f"layer-{layer}-beta-{beta:g}", "reweigh"
            options = {"table": grid.tables[layer], "beta": beta, "cache": cache, "force": force}
        arm = decoder_arm(name, (model, processor), decoder, options, template=runs.template)
        made.answer(arm)
        return arm

    with made.progress(1 + len(grid.tables) * (len(grid.betas) + (len(grid.betas) > 1))):
        yield made, answer


def quality(run: Scored) -> Quality:
    """Return the figures of a scored run that the search judges."""
    return Quality(**{name: run.summary.metrics[name].value for name in FIGURES})


class Pictures(Benchmark):
    """A folder of pictures to describe; it has no metrics."""

    name = "pictures"

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """Ask for one description of each picture, by file name."""
        return [
            Record(id=name, image=name, prompt=DESCRIBE, max_new_tokens=512)
            for name in (
                path.relative_to(self.data_dir).as_posix() for path in list_images(self.data_dir)[:limit]
            )
        ]

    @staticmethod
    def figures(counts: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return nothing: there is nothing to score against."""
        return {}


def open_pictures(folder: Path, *, limit: int | None = None) -> Task:
    """Open the pictures of a folder as a task."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="--pictures needs a folder of images")
    bench = Pictures(folder)
    metadata: dict[str, Any] = {"name": bench.name, "options": {}, "limit": limit, "shard": "1/1"}
    return Task(bench, bench.records(limit=limit), folder, metadata, {"images": str(folder.resolve())})


def open_lexicon(name: str, data: Path | None = None) -> Lexicon:
    """Find objects in texts as a benchmark does: the embedded world's names, CHAIR's synonyms, a third party's."""
    from reweigh.benchmarks.open import open_benchmark

    return open_benchmark(name, data).objects


Points = dict[Where, Mentions]
Describe = Callable[[int | None, float], Sequence[str]]
"""Describes all pictures at a layer and beta; without a layer as the base model does."""
Lexicon = Callable[[str], Sequence[str]]
"""The objects that a text mentions, repeats kept."""


def tune_without_labels(
    describe: Describe,
    task: Task,
    verifier: Verifier,
    lexicon: Lexicon,
    out: Path,
    *,
    layers: Sequence[int],
    betas: Sequence[float] = BETAS,
    bound: float = BOUND,
) -> Tuned:
    """Answer the grid, let the verifier judge every mentioned object, then the midpoint, and choose.

    Args:
        describe: Describes all pictures at one point.
        task: The pictures.
        verifier: Who affirms or denies.
        lexicon: Finds the objects a text mentions.
        out: Folder for the verdicts.
    """
    asking = Asking(verifier, task, out)
    points: Points = {BASE: _mentions(describe(*BASE), lexicon)}
    for layer in layers:
        for beta in betas:
            points[layer, beta] = _mentions(describe(layer, beta), lexicon)
    found = _judge(points, asking, bound)
    middle = midpoint(found.points)
    if middle is not None and middle not in betas:
        for layer in layers:
            points[layer, middle] = _mentions(describe(layer, middle), lexicon)
        found = _judge(points, asking, bound)
    absents = known_absents(pools(points))
    asking.ask([set(names) for names in absents])
    trusted = trust(points, absents, asking.affirmed, verifier.describe())
    if trusted.refusal() is not None:
        found = replace(found, chosen=None)
    scored = {key: _scored(items, task) for key, items in _items(points, asking).items()}
    return Tuned(found, tuning_frame(scored, figures, task.name), trusted)


def _judge(points: Points, asking: Asking, bound: float) -> Found:
    """Ask about all objects that the points mention, and compare the points with the base."""
    asking.ask(pools(points))
    found = {key: point(items, figures) for key, items in _items(points, asking).items()}
    quality = {key: Quality(**{name: one[name] for name in FIGURES}) for key, one in found.items()}
    base = quality.pop(BASE)
    if base.f1 is None:
        raise InputError(
            "the base's descriptions mention no object that the verifier affirms",
            hint="use pictures of objects that the lexicon knows, or another verifier",
        )
    judged = [
        judge(layer, beta, one, base, bound) for (layer, beta), one in quality.items() if layer is not None
    ]
    judged.sort(key=lambda point: (point.layer, point.beta))
    return Found(base, tuple(judged), choose(judged))


def _items(points: Points, asking: Asking) -> dict[Where, list[Item]]:
    """Count every point by the verdicts there are."""
    pool, records, affirmed = pools(points), asking.task.records, asking.affirmed
    return {key: pseudo_items(records, mentions, pool, affirmed) for key, mentions in points.items()}


def _scored(items: list[Item], task: Task) -> Scored:
    return Scored(items, Summary.of(items, benchmark=task.name, metrics=summarise_metrics(items)))


def _mentions(texts: Sequence[str], lexicon: Lexicon) -> Mentions:
    return [Counter(lexicon(text)) for text in texts]


def tune_free(
    model: Any,
    processor: Any,
    grid: Grid,
    runs: Runs,
    out: Path,
    *,
    lexicon: str,
    data: Path | None = None,
    verifier: Verifier | None = None,
    cache: EvidenceCache,
    force: bool = False,
) -> Tuned:
    """Choose layer and beta by a verifier's yes and no.

    Args:
        lexicon: ``world`` or ``chair``: whose object names are looked for.
        data: Folder of CHAIR's files.
        verifier: Who affirms or denies; the model itself if not given.
    """
    words = open_lexicon(lexicon, data)
    name = str(runs.model.get("id", ""))
    asked = verifier or ModelVerifier(model, processor, template=runs.template, name=name)
    with answering(model, processor, grid, runs, out, cache=cache, force=force) as (made, answer):
        return tune_without_labels(
            lambda layer, beta: made.texts(answer(layer, beta)),
            runs.task,
            asked,
            words,
            out,
            layers=list(grid.tables),
            betas=grid.betas,
            bound=grid.bound,
        )
