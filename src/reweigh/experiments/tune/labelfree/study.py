"""The search of an operating point on pictures without labels: answer, pool, ask, judge, choose.

The same grid, midpoint and rule as with labels; only the figures come from a verifier. Every answer and every verdict
is kept, so that a stopped search goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from reweigh.benchmarks.base import Item, Summary
from reweigh.benchmarks.bootstrap import point
from reweigh.benchmarks.chair.metrics import figures, summarise_metrics
from reweigh.errors import InputError
from reweigh.experiments.tune.labelfree.asking import Asking
from reweigh.experiments.tune.labelfree.figures import Mentions, known_absents, pools, pseudo_items
from reweigh.experiments.tune.labelfree.verified import Verified
from reweigh.experiments.tune.labelfree.verifier import Verifier
from reweigh.experiments.tune.search import (
    BASE,
    BETAS,
    BOUND,
    FIGURES,
    Found,
    Key,
    Quality,
    choose,
    judge,
    midpoint,
)
from reweigh.experiments.tune.tuned import Tuned
from reweigh.files.seals import read_sealed_rows
from reweigh.runs.record import RESPONSES, run_owner
from reweigh.runs.task import Scored, Task

Points = dict[Key, Mentions]
Answer = Callable[[int | None, float], Path]
"""Answers all records at a layer and beta into a run folder; without a layer as the base model does."""
Lexicon = Callable[[str], Sequence[str]]
"""The objects that a text mentions, repeats kept."""


def tune_without_labels(
    answer: Answer,
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
        answer: Answers all records at one point into a folder.
        task: The pictures.
        verifier: Who affirms or denies.
        lexicon: Finds the objects a text mentions.
        out: Folder for the verdicts.
    """
    asking = Asking(verifier, task, out)
    points: Points = {BASE: _mentions(answer(*BASE), lexicon)}
    for layer in layers:
        for beta in betas:
            points[layer, beta] = _mentions(answer(layer, beta), lexicon)
    found = _judge(points, asking, bound)
    middle = midpoint(found.points)
    if middle is not None and middle not in betas:
        for layer in layers:
            points[layer, middle] = _mentions(answer(layer, middle), lexicon)
        found = _judge(points, asking, bound)
    absents = known_absents(pools(points))
    asking.ask([set(names) for names in absents])
    verified = Verified(points, absents, asking.gaps, verifier.describe())
    if verified.trust.refusal() is not None:
        found = replace(found, chosen=None)
    scored = {key: _scored(items, task) for key, items in _items(points, asking).items()}
    return Tuned(found, scored, figures, verified)


def _judge(points: Points, asking: Asking, bound: float) -> Found:
    """Ask about all that the points mention, and hold them against the base."""
    asking.ask(pools(points))
    found = {key: point(items, figures) for key, items in _items(points, asking).items()}
    quality = {key: Quality(**{name: one[name] for name in FIGURES}) for key, one in found.items()}
    base = quality.pop(BASE)
    if base.f1 is None:
        raise InputError(
            "the base's descriptions mention no object that the verifier affirms",
            hint="take pictures of objects the lexicon knows, or another verifier",
        )
    judged = [
        judge(layer, beta, one, base, bound) for (layer, beta), one in quality.items() if layer is not None
    ]
    judged.sort(key=lambda point: (point.layer, point.beta))
    return Found(base, tuple(judged), choose(judged))


def _items(points: Points, asking: Asking) -> dict[Key, list[Item]]:
    """Every point counted by the verdicts there are."""
    pool, records, affirmed = pools(points), asking.task.records, asking.affirmed
    return {key: pseudo_items(records, mentions, pool, affirmed) for key, mentions in points.items()}


def _scored(items: list[Item], task: Task) -> Scored:
    return Scored(items, Summary.of(items, benchmark=task.name, metrics=summarise_metrics(items)))


def _mentions(folder: Path, lexicon: Lexicon) -> Mentions:
    rows = read_sealed_rows(folder / RESPONSES, owner=run_owner(folder))
    return [Counter(lexicon(str(row["response"]))) for row in rows]
