"""The search of an operating point on a model: every point answered and scored into a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reweigh.engines.cache import EvidenceCache
from reweigh.method.register.table import ReferenceTable
from reweigh.progress import bar
from reweigh.runs.model import asking, open_session
from reweigh.runs.task import Runs, Scored
from reweigh.studies.tune.search import BETAS, BOUND, FIGURES, Found, Quality, search

Answer = Callable[[int | None, float], Path]
"""Answers all records at a layer and beta into a run folder; without a layer as the base model does."""


def tune(
    model: Any,
    processor: Any,
    tables: Mapping[int, ReferenceTable],
    runs: Runs,
    out: Path,
    *,
    betas: Sequence[float] = BETAS,
    bound: float = BOUND,
    cache: EvidenceCache,
    force: bool = False,
) -> Found:
    """Answer and score the base and every point under one bar; evidence is measured once for each layer."""
    with answering(model, processor, tables, runs, out, betas=betas, cache=cache, force=force) as answer:

        def ask(layer: int | None, beta: float) -> Quality:
            return quality(runs.score(answer(layer, beta)))

        return search(ask, ask(None, 0.0), layers=list(tables), betas=betas, bound=bound)


@contextmanager
def answering(
    model: Any,
    processor: Any,
    tables: Mapping[int, ReferenceTable],
    runs: Runs,
    out: Path,
    *,
    betas: Sequence[float],
    cache: EvidenceCache,
    force: bool = False,
) -> Iterator[Answer]:
    """A function that answers all records at one point into a folder below ``out``, under one bar for the search."""
    count = len(runs.task.records)
    done = sum(runs.done(folder) for folder in (out / "runs").glob("*"))
    total = count * (1 + len(tables) * (len(betas) + (len(betas) > 1)))
    with bar("tuning", total=total, done=done, unit="answer") as progress:

        def answer(layer: int | None, beta: float) -> Path:
            name, decoder, options = "base", "base", {}
            if layer is not None:
                name, decoder = f"layer-{layer}-beta-{beta:g}", "reweigh"
                options = {"table": tables[layer], "beta": beta, "cache": cache, "force": force}
            progress.set_description(name)
            session = open_session(model, processor, decoder, options)
            folder = out / "runs" / name
            runs.answer(asking(session, template=runs.template), folder, session.record(), progress=progress)
            return folder

        yield answer


def quality(run: Scored) -> Quality:
    """The figures of a scored run that the search judges."""
    return Quality(**{name: run.summary.metrics[name].value for name in FIGURES})
