"""What a comparison holds: methods under figures, intervals, paired differences to the base, shades and ranks.

A figure is shaded only if the paired interval of its difference to the base excludes zero, and strongly if it also moved
by more than 20%; the paper's shading (beyond 5% and 20%, whatever the interval) is an option. Cost is shaded if the interval
of its ratio excludes 1. In each column the best is bold and the second best underlined. Knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from reweigh.estimate import Estimate
from reweigh.results.frame import Frame
from reweigh.results.table import Column, Place, Shade, Table
from reweigh.runs.record import REPORT
from reweigh.runs.results import ScoredRun

LIGHT, STRONG = 0.05, 0.20
CHIEF = "ReWEIGH"
Shading = Literal["interval", "paper"]
COST = "Cost"
DEFAULTS = "official defaults"
"""Settings of a decoder that was given no options."""


def figure_column(
    group: str, name: str, better: Literal["lower", "higher"] | None, digits: int = 2
) -> Column:
    """The column of a benchmark's figure."""
    return Column(name, better, digits, group=group)


def cost_columns() -> list[Column]:
    """The two columns of cost, as ratios to greedy."""
    return [Column(name, "lower", 2, unit="×", group=COST, ranked=False) for name in ("Lat.", "Mem.")]


@dataclass(frozen=True)
class MethodRow:
    """A method's figures with intervals and differences to the base, its regime, and the reason if it was not run.

    ``runs`` are the folders of its runs below the comparison's, by benchmark; ``settings`` describes the decoder's
    options; ``scored`` are the runs themselves, for the page's examples.
    """

    title: str
    values: Sequence[float | None]
    regime: str = ""
    reason: str | None = None
    intervals: Sequence[Estimate | None] = ()
    differences: Sequence[Estimate | None] = ()
    runs: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    scored: Mapping[str, ScoredRun] = field(default_factory=dict, compare=False, repr=False)

    def interval(self, column: int) -> Estimate | None:
        """The figure with its interval, where it has one."""
        return self.intervals[column] if column < len(self.intervals) else None

    def difference(self, column: int) -> Estimate | None:
        """The paired difference to the base, where there is one."""
        return self.differences[column] if column < len(self.differences) else None


def shade(value: float | None, base: float | None, better: str | None) -> Shade:
    """How far a figure is from the base's, for the better or for the worse."""
    if value is None or base is None or better is None or base == 0:
        return ""
    change = (value - base) / abs(base) * (1 if better == "higher" else -1)
    if abs(change) <= LIGHT:
        return ""
    if change > 0:
        return "better-strong" if change > STRONG else "better"
    return "worse-strong" if change < -STRONG else "worse"


def shade_by_interval(
    difference: Estimate, value: float | None, base: float | None, better: str | None
) -> Shade:
    """Shade a figure whose difference to the base is beyond chance, strongly if it also moved by more than 20%."""
    if better is None or difference.value is None or not difference.beyond_chance:
        return ""
    strong = value is not None and bool(base) and abs(difference.value) > STRONG * abs(base or 1.0)
    if (difference.value < 0) == (better == "lower"):
        return "better-strong" if strong else "better"
    return "worse-strong" if strong else "worse"


@dataclass(frozen=True)
class Comparison:
    """Rows of methods, or of anything else that is compared with the base, which comes first."""

    model: str
    columns: Sequence[Column]
    rows: Sequence[MethodRow]
    notes: Sequence[str] = ()
    shading: Shading = "interval"
    kind: str = "method"
    frame: Frame = field(default_factory=Frame, compare=False)

    def shade_of(self, row: int, column: int) -> Shade:
        """The shade of a cell; the base has none."""
        if row == 0:
            return ""
        value, base = self.rows[row].values[column], self.rows[0].values[column]
        better, difference = self.columns[column].better, self.rows[row].difference(column)
        if self.shading == "paper":
            return shade(value, base, better)
        if self.columns[column].group == COST and (ratio := self.rows[row].interval(column)) is not None:
            difference = ratio.map(lambda one: one - 1)
        return "" if difference is None else shade_by_interval(difference, value, base, better)

    def rank_of(self, row: int, column: int) -> Place:
        """Whether a cell is the best or second best of its column, ties judged as printed."""
        return self.figures.place(row, column + 1)

    def chief(self) -> MethodRow:
        """The row that the page is about: ReWEIGH's, or the last."""
        return next((row for row in self.rows if row.title == CHIEF), self.rows[-1])

    @cached_property
    def figures(self) -> Table:
        """Figures of every row, shaded and ranked."""
        across = range(len(self.columns))
        rows = [[row.title, *(row.interval(j) or row.values[j] for j in across)] for row in self.rows]
        shades = {(i, j + 1): self.shade_of(i, j) for i in range(len(self.rows)) for j in across}
        links = {
            i: f"{next(iter(row.runs.values()))}/{REPORT}"
            for i, row in enumerate(self.rows)
            if len(row.runs) == 1
        }
        return Table([Column(self.kind), *self.columns], rows, shades=shades, second=True, links=links)

    @cached_property
    def differences(self) -> Table | None:
        """Differences to the base, where there are any."""
        compared = [j for j in range(len(self.columns)) if any(row.difference(j) for row in self.rows[1:])]
        if not compared:
            return None
        columns = [
            Column(one.name, one.better, one.digits, signed=True, group=one.group, ranked=False)
            for one in (self.columns[j] for j in compared)
        ]
        rows = [[row.title, *(row.difference(j) for j in compared)] for row in self.rows[1:]]
        shades = {
            (i, place): self.shade_of(i + 1, j)
            for i in range(len(rows))
            for place, j in enumerate(compared, 1)
        }
        return Table([Column(self.kind), *columns], rows, shades=shades)

    def caption(self) -> list[str]:
        """What a reader must know to read the table."""
        regimes = "; ".join(f"{row.title}: {row.regime}" for row in self.rows if row.regime)
        missing = [f"{row.title} was not run: {row.reason}." for row in self.rows if row.reason]
        answered = f"Each {self.kind} is answered and timed in its own decoding regime ({regimes})."
        settings = [f"{row.title}: {row.settings}" for row in self.rows if row.settings not in ("", DEFAULTS)]
        used = [f"Settings: {'; '.join([*settings, f'all others: {DEFAULTS}'])}."] if settings else []
        return [*self.notes, *([answered] if regimes else []), *used, *missing]

    def legend(self) -> str:
        """What the shades mean."""
        if self.shading == "paper":
            return "▲ better and ▼ worse than the base by more than 5%, doubled by more than 20%."
        return (
            "▲ better and ▼ worse than the base beyond chance (the paired 95% interval excludes no change), doubled where "
            "the figure moved by more than 20%."
        )

    def to_json(self) -> dict[str, Any]:
        """Unrounded values with shades and ranks, for a program."""
        rows = []
        for i, row in enumerate(self.rows):
            cells = {
                f"{column.group}/{column.name}": {
                    "value": row.values[j],
                    **_ends("", row.interval(j)),
                    **_ends("difference_", row.difference(j), value=True),
                    "shade": self.shade_of(i, j),
                    "place": self.rank_of(i, j),
                }
                for j, column in enumerate(self.columns)
            }
            about = {
                self.kind: row.title,
                "regime": row.regime,
                "settings": row.settings,
                "reason": row.reason,
            }
            rows.append({**about, "runs": dict(row.runs), "figures": cells})
        return {"model": self.model, "shading": self.shading, "rows": rows, "notes": self.caption()}


def _ends(prefix: str, metric: Estimate | None, *, value: bool = False) -> dict[str, float | None]:
    if metric is None:
        return {}
    ends = {f"{prefix}low": metric.low, f"{prefix}high": metric.high}
    return {f"{prefix}value": metric.value, **ends} if value else ends
