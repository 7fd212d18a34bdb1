"""Choosing layer and beta without labels: a verifier's yes and no stand for what is in each picture.

Experimental. All pictures are described at every point; every object that any description mentions is asked about once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Benchmark, Item, Record, Summary
from reweigh.benchmarks.bootstrap import Array, point
from reweigh.benchmarks.chair.metrics import figures, summarise_metrics
from reweigh.errors import InputError
from reweigh.experiments.tune.search import (
    BASE,
    BETAS,
    BOUND,
    FIGURES,
    Found,
    Quality,
    Tuned,
    Where,
    choose,
    judge,
    midpoint,
    tuning_frame,
)
from reweigh.experiments.tune.study import Grid, answering
from reweigh.experiments.tune.verdicts import Asking, Mentions, known_absents, pools, pseudo_items, trust
from reweigh.experiments.tune.verifier import ModelVerifier, Verifier
from reweigh.images import list_images
from reweigh.runs.task import Runs, Scored, Task
from reweigh.runtime.memory import EvidenceCache
from reweigh.text import DESCRIBE


class Pictures(Benchmark):
    """A folder of pictures to describe; it has no metrics."""

    name = "pictures"

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """Ask for one description of each picture, by file name."""
        paths = list_images(self.data_dir)[:limit]
        names = [path.relative_to(self.data_dir).as_posix() for path in paths]
        return [Record(id=name, image=name, prompt=DESCRIBE, max_new_tokens=512) for name in names]

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
    points: Points = {}

    def describe_at(layer: int | None, beta: float) -> None:
        points[layer, beta] = [Counter(lexicon(text)) for text in describe(layer, beta)]

    describe_at(*BASE)
    for layer in layers:
        for beta in betas:
            describe_at(layer, beta)
    found = _judge(points, asking, bound)
    middle = midpoint(found.points)
    if middle is not None and middle not in betas:
        for layer in layers:
            describe_at(layer, middle)
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
