"""What a comparison holds: methods under figures, intervals, paired differences to the base, shades and ranks.

A figure is shaded only where the paired interval of its difference to the base leaves zero out, strongly where it also
moved by more than 20%; the paper's shading (beyond 5% and 20%, whatever the interval) is an option. Cost is shaded where the
interval of its ratio excludes 1. In each column the best is bold and the second best underlined. Knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reweigh.estimate import Estimate
from reweigh.results.frame import Frame
from reweigh.results.table import ARROWS, MISSING
from reweigh.runs.results import ScoredRun

LIGHT, STRONG = 0.05, 0.20
CHIEF = "ReWEIGH"
Shade = Literal["better-strong", "better", "", "worse", "worse-strong"]
Shading = Literal["interval", "paper"]
COST = "Cost"
DEFAULTS = "official defaults"
"""Settings of a decoder to which no option was given."""


@dataclass(frozen=True)
class Figure:
    """A column: its group (a benchmark, or cost), name, better direction, and how its numbers are written."""

    group: str
    name: str
    better: Literal["lower", "higher"] | None
    digits: int = 2
    unit: str = ""
    ranked: bool = True

    def show(self, value: float | None) -> str:
        """A number of this column as text."""
        return MISSING if value is None else f"{value:.{self.digits}f}{self.unit}"

    @property
    def heading(self) -> str:
        """Name and arrow."""
        return f"{self.name} {ARROWS[self.better]}" if self.better else self.name


@dataclass(frozen=True)
class Row:
    """A method's figures with intervals and differences to the base, its regime, and why it has none where it has none.

    ``runs`` are the folders of its runs below the comparison's, by benchmark; ``settings`` are the decoder's, in words;
    ``scored`` are the runs themselves, for the page's examples.
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
    if better is None or difference.value is None or difference.low is None or difference.high is None:
        return ""
    if difference.low <= 0 <= difference.high:
        return ""
    strong = value is not None and bool(base) and abs(difference.value) > STRONG * abs(base or 1.0)
    if (difference.value < 0) == (better == "lower"):
        return "better-strong" if strong else "better"
    return "worse-strong" if strong else "worse"


@dataclass(frozen=True)
class Comparison:
    """Rows of methods, or of whatever else is compared with the base, the base first, under columns of figures."""

    model: str
    figures: Sequence[Figure]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    shading: Shading = "interval"
    kind: str = "method"
    frame: Frame = field(default_factory=Frame, compare=False)

    def shade_of(self, row: int, column: int) -> Shade:
        """The shade of a cell; the base has none."""
        if row == 0:
            return ""
        value, base = self.rows[row].values[column], self.rows[0].values[column]
        better, difference = self.figures[column].better, self.rows[row].difference(column)
        if self.shading == "paper":
            return shade(value, base, better)
        if self.figures[column].group == COST and (ratio := self.rows[row].interval(column)) is not None:
            difference = ratio.map(lambda one: one - 1)
        return "" if difference is None else shade_by_interval(difference, value, base, better)

    def rank_of(self, row: int, column: int) -> Literal["best", "second", ""]:
        """Whether a cell is the best or second best of its column, ties judged as printed."""
        figure, value = self.figures[column], self.rows[row].values[column]
        known = [one for one in (each.values[column] for each in self.rows) if one is not None]
        if figure.better is None or not figure.ranked or value is None or len(known) < 2:
            return ""
        ranked = sorted(known, reverse=figure.better == "higher")
        written = list(dict.fromkeys(figure.show(one) for one in ranked))
        mine = figure.show(value)
        return "best" if mine == written[0] else ("second" if len(written) > 1 and mine == written[1] else "")

    def chief(self) -> Row:
        """The row that the page is about: ReWEIGH's, or the last."""
        return next((row for row in self.rows if row.title == CHIEF), self.rows[-1])

    def groups(self) -> list[tuple[str, int]]:
        """Adjacent columns of one group, with their number."""
        found: list[tuple[str, int]] = []
        for figure in self.figures:
            if found and found[-1][0] == figure.group:
                found[-1] = (figure.group, found[-1][1] + 1)
            else:
                found.append((figure.group, 1))
        return found

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
                f"{figure.group}/{figure.name}": {
                    "value": row.values[j],
                    **_ends("", row.interval(j)),
                    **_ends("difference_", row.difference(j), value=True),
                    "shade": self.shade_of(i, j),
                    "place": self.rank_of(i, j),
                }
                for j, figure in enumerate(self.figures)
            }
            about = {
                self.kind: row.title,
                "regime": row.regime,
                "settings": row.settings,
                "reason": row.reason,
            }
            rows.append({**about, "runs": dict(row.runs), "figures": cells})
        return {"model": self.model, "shading": self.shading, "rows": rows, "notes": self.caption()}


def cost_figures() -> list[Figure]:
    """The two columns of cost, as ratios to greedy."""
    return [
        Figure(COST, "Lat.", "lower", unit="×", ranked=False),
        Figure(COST, "Mem.", "lower", unit="×", ranked=False),
    ]


def _ends(prefix: str, metric: Estimate | None, *, value: bool = False) -> dict[str, float | None]:
    if metric is None:
        return {}
    ends = {f"{prefix}low": metric.low, f"{prefix}high": metric.high}
    return {f"{prefix}value": metric.value, **ends} if value else ends
