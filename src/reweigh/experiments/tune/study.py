"""The search of an operating point on a model: every point answered and scored into a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reweigh.experiments.tune.grid import Grid
from reweigh.experiments.tune.search import BASE, FIGURES, Key, Quality, search
from reweigh.experiments.tune.tuned import Tuned
from reweigh.progress import bar
from reweigh.runs.model import make_ask, open_session
from reweigh.runs.task import Runs, Scored
from reweigh.runtime.memory import EvidenceCache

Answer = Callable[[int | None, float], Path]
"""Answers all records at a layer and beta into a run folder; without a layer as the base model does."""


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
    with answering(model, processor, grid, runs, out, cache=cache, force=force) as answer:

        def ask(layer: int | None, beta: float) -> Quality:
            scored[layer, beta] = runs.score(answer(layer, beta))
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
) -> Iterator[Answer]:
    """A function that answers all records at one point into a folder below ``out``, under one bar for the search."""
    count = len(runs.task.records)
    done = sum(runs.done(folder) for folder in (out / "runs").glob("*"))
    total = count * (1 + len(grid.tables) * (len(grid.betas) + (len(grid.betas) > 1)))
    with bar("tuning", total=total, done=done, unit="answer") as progress:

        def answer(layer: int | None, beta: float) -> Path:
            folder = folder_of(out, (layer, beta))
            decoder, options = "base", {}
            if layer is not None:
                decoder = "reweigh"
                options = {"table": grid.tables[layer], "beta": beta, "cache": cache, "force": force}
            progress.set_description(folder.name)
            session = open_session(model, processor, decoder, options)
            runs.answer(
                make_ask(session, template=runs.template), folder, session.record(), progress=progress
            )
            return folder

        yield answer


def folder_of(out: Path, key: Key) -> Path:
    """Where the run of a point is kept."""
    layer, beta = key
    return out / "runs" / ("base" if layer is None else f"layer-{layer}-beta-{beta:g}")


def quality(run: Scored) -> Quality:
    """The figures of a scored run that the search judges."""
    return Quality(**{name: run.summary.metrics[name].value for name in FIGURES})
