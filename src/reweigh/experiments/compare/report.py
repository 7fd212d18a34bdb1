"""A finished comparison: methods under metrics with intervals, paired differences to the base, shades and ranks; its page.

A metric is shaded only if the paired interval of its difference to the base excludes zero, and strongly if it also moved by
more than 20%. Cost is shaded if the interval of its ratio excludes 1. In each column the best is bold and the second best
underlined. Knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal
from urllib.parse import quote

from reweigh.benchmarks.base import Id, Item
from reweigh.estimate import Estimate
from reweigh.experiments.compare.methods import DEFAULTS, TUNED
from reweigh.experiments.experiment import Files
from reweigh.results.charts import Marks, alt_text, scatter
from reweigh.results.examples import example_card, response
from reweigh.results.frame import Frame
from reweigh.results.html import element, join, legend
from reweigh.results.page import Page
from reweigh.results.table import Column, Place, Shade, Table
from reweigh.runs.record import REPORT
from reweigh.runs.results import ScoredRun

FILES = Files(("comparison.md", "comparison.html", "comparison.tex"), "comparison.json")
STRONG = 0.20
CHIEF = "ReWEIGH"
COST = "Cost"
PAIRED = "Difference to the base, with paired 95% image-bootstrap intervals"
SHADES = (
    "▲ better and ▼ worse than the base beyond chance (the paired 95% interval excludes no change), doubled where "
    "the figure moved by more than 20%."
)
PLOTTED = ("CHAIR_I", "distinct CHAIR_I", "F1")
"""Metrics that are drawn over cost, if a comparison has them."""
GAINED, LOST = 2, 1
"""Pictures on which the chief method has fewer, and more, objects that are not there than the base."""


def figure_column(
    group: str, name: str, better: Literal["lower", "higher"] | None, digits: int = 2
) -> Column:
    """The column of a benchmark's metric."""
    return Column(name, better, digits, group=group)


def cost_columns() -> list[Column]:
    """The two columns of cost, as ratios to greedy."""
    return [Column(name, "lower", 2, unit="×", group=COST, ranked=False) for name in ("Lat.", "Mem.")]


@dataclass(frozen=True)
class MethodRow:
    """One row of a comparison.

    Attributes:
        title: The method as papers write it.
        cells: Its metrics and cost, one for each column.
        differences: Paired differences to the base, for the columns that have them; empty for the base.
        regime: How it decodes.
        reason: Why it was not run, if so.
        runs: Folders of its runs below the comparison's, by benchmark.
        settings: The decoder's options in words.
        scored: The runs themselves, for the page's examples.
    """

    title: str
    cells: Sequence[Estimate | None]
    differences: Sequence[Estimate | None] = ()
    regime: str = ""
    reason: str | None = None
    runs: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    scored: Mapping[str, ScoredRun] = field(default_factory=dict, compare=False, repr=False)

    def difference(self, column: int) -> Estimate | None:
        """The paired difference to the base, where there is one."""
        return self.differences[column] if column < len(self.differences) else None


def shade(difference: Estimate, base: float | None, better: str | None) -> Shade:
    """Shade a metric whose difference to the base is beyond chance, strongly if it also moved by more than 20%."""
    if better is None or difference.value is None or not difference.beyond_chance:
        return ""
    strong = bool(base) and abs(difference.value) > STRONG * abs(base or 1.0)
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
    kind: str = "method"
    frame: Frame = field(default_factory=Frame, compare=False)

    def shade_of(self, row: int, column: int) -> Shade:
        """The shade of a cell; the base has none."""
        cell, base = self.rows[row].cells[column], self.rows[0].cells[column]
        difference = self.rows[row].difference(column)
        if self.columns[column].group == COST and cell is not None:
            difference = cell.map(lambda ratio: ratio - 1)
        if row == 0 or difference is None:
            return ""
        return shade(difference, None if base is None else base.value, self.columns[column].better)

    def rank_of(self, row: int, column: int) -> Place:
        """Whether a cell is the best or second best of its column, ties judged as printed."""
        return self.figures.place(row, column + 1)

    def chief(self) -> MethodRow:
        """The row that the page is about: ReWEIGH's, or the last."""
        return next((row for row in self.rows if row.title == CHIEF), self.rows[-1])

    @cached_property
    def figures(self) -> Table:
        """Metrics and cost of every row, shaded and ranked."""
        rows = [[row.title, *row.cells] for row in self.rows]
        shades = {(i, j + 1): self.shade_of(i, j) for i in range(len(rows)) for j in range(len(self.columns))}
        return Table([Column(self.kind), *self.columns], rows, shades=shades, second=True)

    @cached_property
    def differences(self) -> Table | None:
        """Differences to the base, where there are any."""
        compared = [j for j in range(len(self.columns)) if any(row.difference(j) for row in self.rows[1:])]
        if not compared:
            return None
        columns = [replace(self.columns[j], signed=True, ranked=False) for j in compared]
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

    def add_to(self, page: Page) -> Page:
        """Add the tables with their notes to a page."""
        page.section("Figures").table(self.figures, fold=len(self.rows))
        page.text(SHADES, "Bold is the best of a column, underlined the second best.", muted=True)
        page.text(*self.caption(), muted=True)
        if self.differences is not None:
            page.section(PAIRED).table(self.differences, fold=len(self.rows))
        return page

    def to_json(self) -> dict[str, Any]:
        """Unrounded values with shades and ranks, for a program."""
        rows = []
        for i, row in enumerate(self.rows):
            cells = {
                f"{column.group}/{column.name}": {
                    "value": None if (cell := row.cells[j]) is None else cell.value,
                    **({} if cell is None else {"low": cell.low, "high": cell.high}),
                    **_difference(row.difference(j)),
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
        return {"model": self.model, "shading": "interval", "rows": rows, "notes": self.caption()}


def _difference(one: Estimate | None) -> dict[str, float | None]:
    names = ("difference_value", "difference_low", "difference_high")
    return {} if one is None else dict(zip(names, one.parts, strict=True))


def build_page(made: Comparison) -> Page:
    """The tables, quality drawn over cost, examples, and links to the page of every run."""
    page = Page("Comparison of decoders", lead=made.model, footer="Written by reweigh compare.")
    made.add_to(page)
    _add_quality_over_cost(page, made)
    _add_examples(page, made)
    links = [
        element("li", f"{row.title}: ", join(
            (element("a", name, href=quote(f"{folder}/{REPORT}")) for name, folder in row.runs.items()), ", "
        ))
        for row in made.rows
        if row.runs
    ]  # fmt: skip
    if links:
        words = "Each method's answers with scores, examples and a record of its settings:"
        page.section("Runs").add(element("p", words, class_="muted"), element("ul", *links))
    return page


def _add_quality_over_cost(page: Page, made: Comparison) -> None:
    """Draw hallucination and, where recall is known, F1 over latency."""
    names = [one.name for one in made.columns]
    cost = next((j for j, one in enumerate(made.columns) if (one.group, one.name) == (COST, "Lat.")), None)
    if cost is None or sum(row.reason is None for row in made.rows) < 2:
        return
    page.section("Quality against cost")
    for quality in [names.index(wanted) for wanted in PLOTTED if wanted in names] or [0]:
        one = made.columns[quality]
        drawn = [
            Marks(_short(row.title), [(row.cells[cost], row.cells[quality])], chief=row is made.chief())
            for row in made.rows
            if row.reason is None
        ]
        better = f"{one.better} is better, " if one.better else ""
        page.chart(
            partial(_scatter, drawn, one.name),
            f"{one.name} over cost: {better}further left is cheaper; lines are 95% intervals.",
            alt=alt_text(f"{one.name} over cost", {one.name: one.points[0][1] for one in drawn}, 2),
            height=3.8,
        )


def _short(title: str) -> str:
    """A method's name for a drawing: without the words in brackets, unless they tell two of its rows apart."""
    name, _, label = title.partition(" (")
    return f"{name} {TUNED}" if label.endswith(f"{TUNED})") else name


def _scatter(drawn: Sequence[Marks], up: str, panel: Any, narrow: bool) -> None:
    scatter(panel, drawn, across="time per token, times greedy's", up=up, narrow=narrow)


def _add_examples(page: Page, made: Comparison) -> None:
    """What every method wrote about a few pictures, for each benchmark whose texts name objects."""
    benchmarks = dict.fromkeys(name for row in made.rows for name in row.scored)
    for name in benchmarks:
        rows = [row for row in made.rows if name in row.scored]
        items = {row.title: {one.id: one for one in row.scored[name].items} for row in rows}
        base, chief = rows[0], made.chief() if made.chief() in rows else rows[-1]
        if len(rows) < 2 or not all("mentions" in one.details for one in items[base.title].values()):
            continue
        page.section("Examples" if len(benchmarks) == 1 else f"Examples of {name}").add(legend())
        page.text(
            f"The pictures on which {chief.title} names fewest objects that are not there, against the base; then the one "
            "where it names most; then the one on which the methods differ most. Chosen by these numbers, not by taste.",
            muted=True,
        )
        absent = {
            title: {identity: len(_absent(one)) for identity, one in found.items()}
            for title, found in items.items()
        }
        order = [
            base,
            *([chief] if chief is not base else []),
            *(row for row in rows[1:] if row is not chief),
        ]
        find = base.scored[name].image_finder()
        for identity in choose(absent[base.title], absent[chief.title], list(absent.values())):
            responses = []
            for row in order:
                item = items[row.title][identity]
                wrong = ", ".join(sorted(_absent(item)))
                note = f"not there: {wrong}" if wrong else "nothing that is not there"
                text = row.scored[name].texts.get(identity, "")
                responses.append(response(item, text, title=row.title, note=note))
            item = items[base.title][identity]
            there = item.details.get("reference")
            listed = [f"In it: {', '.join(map(str, there))}"] if isinstance(there, list) else []
            page.add(example_card(item, find(identity), responses, *listed))


def choose(base: Mapping[Id, int], chief: Mapping[Id, int], all_: Sequence[Mapping[Id, int]]) -> list[Id]:
    """The pictures to show: most gained, most lost, and the one on which the methods differ most; ties by id."""
    gain = {one: base[one] - chief[one] for one in base}
    order = sorted(gain, key=lambda one: (-gain[one], str(one)))
    gained = [one for one in order if gain[one] > 0][:GAINED]
    lost = sorted((one for one in gain if gain[one] < 0), key=lambda one: (gain[one], str(one)))[:LOST]
    spread = {one: max(found[one] for found in all_) - min(found[one] for found in all_) for one in base}
    apart = [one for one in spread if one not in (*gained, *lost)]
    apart.sort(key=lambda one: (-spread[one], str(one)))
    return [*gained, *lost, *apart[:1]]


def _absent(item: Item) -> set[str]:
    """The objects that a text names although they are not there."""
    mentions = item.details.get("mentions", [])
    return {str(one.get("object", one.get("word"))) for one in mentions if one["hallucinated"]}
