"""The search for an operating point on a model: every point is answered and scored in its own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.experiments.experiment import Arm, Experiment, decoder_arm
from reweigh.experiments.tune.search import (
    BASE,
    BETAS,
    BOUND,
    FIGURES,
    RULE,
    Quality,
    Tuned,
    Where,
    parse_numbers,
    search,
    tuning_frame,
)
from reweigh.method.edit import check_beta
from reweigh.runs.task import Runs, Scored, Task
from reweigh.runtime.memory import EvidenceCache
from reweigh.tables.folders import table_layers
from reweigh.tables.table import ReferenceTable


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
