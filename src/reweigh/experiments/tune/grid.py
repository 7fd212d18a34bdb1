"""The points of a search as they are asked for: a table for each layer, the betas, and the loss of F1 that is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.experiments.tune.search import BETAS, BOUND, RULE, parse_numbers
from reweigh.method.edit import check_beta
from reweigh.runs.task import Task
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
        """What an operating point keeps of how it was chosen."""
        return {
            "benchmark": task.name,
            "options": task.metadata["options"],
            "limit": limit,
            "seed": seed,
            "records": len(task.records),
            "bound": self.bound,
            "rule": RULE,
            "table_sha256": {str(layer): one.fingerprint for layer, one in self.tables.items()},
        }
