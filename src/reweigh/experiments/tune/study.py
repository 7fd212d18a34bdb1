"""The search of an operating point on a model: every point answered and scored into a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reweigh.experiments.experiment import Arm, Experiment, decoder_arm
from reweigh.experiments.tune.grid import Grid
from reweigh.experiments.tune.search import BASE, FIGURES, Key, Quality, search
from reweigh.experiments.tune.tuned import Tuned
from reweigh.runs.task import Runs, Scored
from reweigh.runtime.memory import EvidenceCache

Answer = Callable[[int | None, float], Arm]
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
    scored: dict[Key, Scored] = {}
    with answering(model, processor, grid, runs, out, cache=cache, force=force) as (made, answer):

        def ask(layer: int | None, beta: float) -> Quality:
            scored[layer, beta] = made.score(answer(layer, beta))
            return quality(scored[layer, beta])

        found = search(ask, ask(*BASE), layers=list(grid.tables), betas=grid.betas, bound=grid.bound)
    return Tuned(found, scored, runs.task.bench.figures)


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
) -> Iterator[tuple[Experiment, Answer]]:
    """An experiment, and a function that answers all records at one point, under one bar for the search."""
    made = Experiment(runs, [], out / "runs", what="tuning")

    def answer(layer: int | None, beta: float) -> Arm:
        name, decoder, options = "base", "base", {}
        if layer is not None:
            name, decoder = f"layer-{layer}-beta-{beta:g}", "reweigh"
            options = {"table": grid.tables[layer], "beta": beta, "cache": cache, "force": force}
        arm = decoder_arm(name, model, processor, decoder, options, template=runs.template)
        made.answer(arm)
        return arm

    with made.progress(1 + len(grid.tables) * (len(grid.betas) + (len(grid.betas) > 1))):
        yield made, answer


def quality(run: Scored) -> Quality:
    """The figures of a scored run that the search judges."""
    return Quality(**{name: run.summary.metrics[name].value for name in FIGURES})
