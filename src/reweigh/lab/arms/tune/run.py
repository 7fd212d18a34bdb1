"""The search for an operating point on a model: every point is answered and scored in its own folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.lab.arms.tune.search import BETAS, BOUND, RULE, Tuned, Where, search
from reweigh.lab.runs.results import Scored
from reweigh.lab.runs.task import Runs, Task
from reweigh.lab.study import Arm, Study, decoder_arm
from reweigh.method.edit import check_beta
from reweigh.tables.store import table_layers
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

    @property
    def options(self) -> dict[str, Any]:
        """Its layers, betas and bound, as options of a search."""
        return {"layers": list(self.tables), "betas": self.betas, "bound": self.bound}

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
            "pictures": task.pictures(),
            "bound": self.bound,
            "rule": RULE,
            "table_sha256": {str(layer): one.fingerprint for layer, one in self.tables.items()},
        }


def parse_numbers(text: str, kind: Callable[[str], Any], what: str) -> list[Any]:
    """Read different numbers from a comma-separated list, ascending."""
    try:
        found = sorted({kind(part.strip()) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise InputError(
            f"--{what} {text!r} is not a list of numbers", hint="separate them by commas"
        ) from error
    if not found:
        raise InputError(f"--{what} names no number", hint="separate them by commas")
    return found


def tune(
    model: Any,
    processor: Any,
    grid: Grid,
    runs: Runs,
    out: Path,
    *,
    force: bool = False,
) -> Tuned:
    """Answer and score the base and every point under one bar."""
    study = Study([runs], [], out, reference=None, what="tuning")

    def score(points: Sequence[Where]) -> Mapping[Where, Scored]:
        for where in points:
            arm = point_arm(where, grid, force=force)
            study.answer(runs, [arm], (model, processor))
            study.score(runs, arm)
            tried[arm.name] = where
        return {tried[name]: one for name, one in study.scored[runs.task.name].items()}

    tried: dict[str, Where] = {}
    with study.progress(1 + len(grid.tables) * (len(grid.betas) + (len(grid.betas) > 1))):
        return search(score, runs.task.bench.figures, runs.task.name, **grid.options)


def point_arm(where: Where, grid: Grid, *, force: bool = False) -> Arm:
    """Return the arm of one point, or of the base."""
    layer, beta = where
    if layer is None:
        return decoder_arm("base", "base")
    options = {"table": grid.tables[layer], "beta": beta, "force": force}
    return decoder_arm(f"layer-{layer}-beta-{beta:g}", "reweigh", options)
