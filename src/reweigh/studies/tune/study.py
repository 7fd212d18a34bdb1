"""The search of an operating point on a model: every point answered and scored into a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.engines.cache import EvidenceCache
from reweigh.method.register.table import ReferenceTable
from reweigh.progress import bar
from reweigh.runs.model import asking, open_session
from reweigh.runs.task import Runs, Scored
from reweigh.studies.tune.search import BETAS, BOUND, FIGURES, Found, Quality, search


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
    count = len(runs.task.records)
    done = sum(runs.done(folder) for folder in (out / "runs").glob("*"))
    total = count * (1 + len(tables) * (len(betas) + (len(betas) > 1)))
    with bar("tuning", total=total, done=done, unit="answer") as progress:

        def run(name: str, decoder: str, options: Mapping[str, Any]) -> Quality:
            progress.set_description(name)
            session = open_session(model, processor, decoder, options)
            folder = out / "runs" / name
            runs.answer(asking(session, template=runs.template), folder, session.record(), progress=progress)
            return quality(runs.score(folder))

        def ask(layer: int, beta: float) -> Quality:
            options = {"table": tables[layer], "beta": beta, "cache": cache, "force": force}
            return run(f"layer-{layer}-beta-{beta:g}", "reweigh", options)

        return search(ask, run("base", "base", {}), layers=list(tables), betas=betas, bound=bound)


def quality(run: Scored) -> Quality:
    """The figures of a scored run that the search judges."""
    return Quality(**{name: run.summary.metrics[name].value for name in FIGURES})
