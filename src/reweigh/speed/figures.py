"""One measured figure, and a page of them: as rows, as JSON, as tables. Knows nothing of what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reweigh.estimate import Estimate
from reweigh.results.table import Cell, Column, Table


@dataclass(frozen=True)
class Figure:
    """The cost of one variant in one case.

    Attributes:
        part: Which measurement: kernels, step, generation, growth.
        case: The shape or model.
        variant: What was run.
        cost: Its cost in ``unit``.
        unit: e.g. "ns per logit".
        ratio: Cost relative to ``against``, formed within rounds.
        goal: The largest ratio this project asks of itself here.
        memory: Peak memory above what was held before, in MiB, where it was looked at.
    """

    part: str
    case: str
    variant: str
    cost: Estimate
    unit: str
    ratio: Estimate | None = None
    against: str = ""
    goal: float | None = None
    memory: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "part": self.part,
            "case": self.case,
            "variant": self.variant,
            "cost": list(self.cost.parts),
            "unit": self.unit,
            "ratio": None if self.ratio is None else list(self.ratio.parts),
            "against": self.against,
            "goal": self.goal,
            "within_goal": self.within_goal,
            "memory_mib": self.memory,
        }

    @property
    def within_goal(self) -> bool | None:
        """Whether the median ratio meets the goal; ``None`` where there is no goal."""
        return None if self.goal is None or self.ratio is None else self.ratio.number <= self.goal


def tables(figures: Sequence[Figure]) -> list[Table]:
    """One table per part and case."""
    cases = dict.fromkeys((figure.part, figure.case) for figure in figures)
    return [
        _table(part, case, [figure for figure in figures if (figure.part, figure.case) == (part, case)])
        for part, case in cases
    ]


def _table(part: str, case: str, figures: Sequence[Figure]) -> Table:
    small = any(figure.ratio and abs(figure.ratio.number) < 0.1 for figure in figures)
    strict = any(figure.goal is not None and abs(figure.goal - 1) <= 0.01 for figure in figures)
    digits = 4 if small or strict else 3
    against = next((figure.against for figure in figures if figure.against), "")
    columns = [Column("variant"), Column(figures[0].unit, digits=2), Column(f"x {against}", digits=digits)]
    rows: list[list[Cell]] = [[figure.variant, figure.cost, figure.ratio] for figure in figures]
    if any(figure.goal is not None for figure in figures):
        columns.append(Column("goal", digits=3))
        rows = [[*row, _goal(figure)] for row, figure in zip(rows, figures, strict=True)]
    if any(figure.memory is not None for figure in figures):
        columns.append(Column("peak MiB", digits=0))
        rows = [[*row, figure.memory] for row, figure in zip(rows, figures, strict=True)]
    return Table(columns, rows, caption=f"{part}: {case}")


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    return f"<= {figure.goal:g} {'met' if figure.within_goal else 'missed'}"
