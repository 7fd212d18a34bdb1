"""A finished comparison: its numbers for a program, and its page."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from reweigh.lab.arms.compare.methods import DEFAULTS, Method, settings_in_words
from reweigh.lab.estimate import Estimate
from reweigh.lab.runs.diff import hallucinated
from reweigh.lab.runs.record import REPORT
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.base import Id
from reweigh.lab.views.charts import Marks, alt_text, scatter
from reweigh.lab.views.contrast import Contrast
from reweigh.lab.views.examples import example, highest
from reweigh.lab.views.html import legend, part
from reweigh.lab.views.page import Page
from reweigh.lab.views.report import Report
from reweigh.lab.views.table import Column, Table

PICTURES = "pictures.csv"
"""One row for each record and method, beside the frame of figures."""
FILES = ("comparison.md", "comparison.html", "comparison.tex", "comparison.json")
CHIEF = "ReWEIGH"
MIXED = (
    "Where the decoding differs from the base's, so does more than the method: --regime greedy or --regime sampling decodes "
    "all alike."
)
COST, LATENCY = "Cost", "Lat."
TEXTS = {
    "unfinished": Column("unfinished", unit="%"),
    "empty": Column("empty", unit="%"),
    "unchanged": Column("as the base", unit="%"),
}
"""What the texts of a method look like: columns of a table of their own."""
PLOTTED = ("CHAIR_I", "distinct CHAIR_I", "F1")
"""Metrics that are drawn over cost, if a comparison has them."""
GAINED, LOST = 2, 1
"""Pictures on which the chief method has fewer, and more, objects that are not there than the base."""


@dataclass(frozen=True)
class Comparison:
    """The figures and cost of methods, the base first.

    Attributes:
        model: Name of the model.
        methods: One for each row of ``contrast``.
        contrast: Figures, cost and differences to the base.
        scored: For each benchmark the scored run of each method that was served.
        notes: What a reader must know to read the table.
    """

    model: str
    methods: Sequence[Method]
    contrast: Contrast
    scored: Mapping[str, Mapping[str, Scored]] = field(default_factory=dict, repr=False)
    notes: Sequence[str] = ()

    def report(self) -> Report:
        """Return the page, the numbers and the frame."""
        return Report(FILES, build_page(self), self.to_json(), self.contrast.frame)

    def chief(self) -> Method:
        """Return the method that the page is about: ReWEIGH, or the last."""
        return next((one for one in self.methods if one.title == CHIEF), self.methods[-1])

    def caption(self) -> list[str]:
        """Return the notes, with how each method was run and why some were not."""
        served = [one for one in self.methods if one.reason is None]
        regimes = [f"{one.title}: {one.regime_in_words()}" for one in served]
        mixed = len({one.regime_in_words() for one in served}) > 1
        settings = {one.title: settings_in_words(one.decoding) for one in served}
        own = [f"{title}: {words}" for title, words in settings.items() if words != DEFAULTS]
        return [
            *self.notes,
            f"Methods are answered and timed as they decode here ({'; '.join(regimes)}).",
            *([MIXED] if mixed else []),
            *([f"Settings: {'; '.join([*own, f'all others: {DEFAULTS}'])}."] if own else []),
            *(f"{one.title} was not run: {one.reason}." for one in self.methods if one.reason is not None),
        ]

    def pictures(self) -> str:
        """Return one row for each record and method as CSV: what was counted in its answer, and the answer."""
        rows = [
            {
                "benchmark": name,
                "method": arm,
                "id": item.id,
                "picture": item.image,
                **item.counts,
                "text": run.texts[item.id],
            }
            for name, found in self.scored.items()
            for arm, run in found.items()
            for item in run.items
        ]
        columns = list(dict.fromkeys(key for row in rows for key in row if key != "text"))
        text = io.StringIO()
        writer = csv.DictWriter(text, [*columns, "text"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def runs(self, method: Method) -> dict[str, str]:
        """Return the folders of a method's runs below that of the comparison, by benchmark."""
        return {name: f"{name}/{method.name}" for name, found in self.scored.items() if method.name in found}

    def to_json(self) -> dict[str, Any]:
        """Return unrounded values with shades and ranks."""
        rows = []
        for i, method in enumerate(self.methods):
            served = method.reason is None
            about = {
                "method": method.title,
                "regime": method.regime_in_words() if served else "",
                "settings": settings_in_words(method.decoding) if served else "",
                "reason": method.reason,
                "runs": self.runs(method),
            }
            figures = {
                f"{head.group}/{head.name}": self._cell(i, j)
                for j, (head, _) in enumerate(self.contrast.columns)
            }
            rows.append({**about, "figures": figures})
        return {"model": self.model, "shading": "interval", "rows": rows, "notes": self.caption()}

    def _cell(self, row: int, column: int) -> dict[str, Any]:
        found, change = self.contrast.value(row, column), self.contrast.difference(row, column)
        cell = (
            {"value": None}
            if found is None
            else dict(zip(("value", "low", "high"), found.parts, strict=True))
        )
        names = ("difference_value", "difference_low", "difference_high")
        difference = {} if change is None else dict(zip(names, change.parts, strict=True))
        marks = {"shade": self.contrast.shade(row, column), "place": self.contrast.place(row, column)}
        return {**cell, **difference, **marks}


def build_page(made: Comparison) -> Page:
    """Return the tables, quality drawn over cost, examples, and links to the page of every run."""
    page = Page("Comparison of decoders", lead=made.model, footer="Written by reweigh compare.")
    made.contrast.add_to(page, *made.caption())
    columns = [
        (replace(head, group=name), {"benchmark": name, "figure": figure})
        for name in made.scored
        for figure, head in TEXTS.items()
        if made.contrast.frame.pick(benchmark=name, figure=figure)
    ]
    if columns:
        texts = replace(made.contrast, columns=columns).values
        rows = [
            [title, method.regime_in_words() if method.reason is None else "", *cells]
            for method, (title, *cells) in zip(made.methods, texts.rows, strict=True)
        ]
        heads = [texts.columns[0], Column("decoding"), *texts.columns[1:]]
        page.section("Decoding and texts").table(Table(heads, rows), fold=len(rows))
    _add_quality_over_cost(page, made)
    for name, found in made.scored.items():
        _add_examples(page, name, found, made)
    links = [
        (one.title, {name: quote(f"{folder}/{REPORT}") for name, folder in runs.items()})
        for one in made.methods
        if (runs := made.runs(one))
    ]
    if links:
        words = "Each method's answers with scores, examples and a record of its settings:"
        page.section("Runs").text(words, muted=True).add(part("runs", links))
    return page


def _add_quality_over_cost(page: Page, made: Comparison) -> None:
    """Draw hallucination and, where recall is known, F1 over latency."""
    contrast = made.contrast
    names = [head.name for head, _ in contrast.columns]
    served = [i for i, one in enumerate(made.methods) if one.reason is None]
    if LATENCY not in names or len(served) < 2:
        return
    page.section("Quality against cost")
    cost, short = names.index(LATENCY), short_titles([made.methods[i].title for i in served])
    for quality in [names.index(wanted) for wanted in PLOTTED if wanted in names] or [0]:
        head, _ = contrast.columns[quality]
        found: dict[str, Estimate | None] = {}
        drawn = []
        for i in served:
            method, name = made.methods[i], short[made.methods[i].title]
            found[name] = contrast.value(i, quality)
            drawn.append(Marks(name, [(contrast.value(i, cost), found[name])], chief=method is made.chief()))
        better = f"{head.better} is better, " if head.better else ""
        page.chart(
            partial(scatter, series=drawn, across="time per token, times greedy's", up=head.name),
            f"{head.name} over cost: {better}further left is cheaper; lines are 95% intervals.",
            alt=alt_text(f"{head.name} over cost", found, 2),
            height=3.8,
        )


def short_titles(titles: Sequence[str]) -> dict[str, str]:
    """Return the names of methods for a drawing: without the words in brackets, unless two would be called the same.

    Examples:
        >>> short_titles(["Base (greedy)", "VCD", "VCD (half)"])
        {'Base (greedy)': 'Base', 'VCD': 'VCD', 'VCD (half)': 'VCD (half)'}
    """
    short = {title: title.partition(" (")[0] for title in titles}
    counts = Counter(short.values())
    return {title: name if counts[name] == 1 else title for title, name in short.items()}


def _add_examples(page: Page, name: str, found: Mapping[str, Scored], made: Comparison) -> None:
    """Add what every method wrote about a few pictures of a benchmark whose texts name objects."""
    runs = {one: scored for one in made.methods if (scored := found.get(one.name)) and scored.texts}
    if len(runs) < 2 or not all("mentions" in item.details for item in next(iter(runs.values())).items):
        return
    base, chief = next(iter(runs)), made.chief() if made.chief() in runs else list(runs)[-1]
    words = (
        f"Chosen by the number of objects that are not there: where {chief.title} gains most on the base, where it loses "
        "most, and where the methods differ most."
    )
    page.section("Examples" if len(made.scored) == 1 else f"Examples of {name}")
    page.add(legend()).text(words, muted=True)
    absent = {one: {item.id: len(hallucinated(item)) for item in run.items} for one, run in runs.items()}
    there = {item.id: item.details.get("reference") for item in runs[base].items}
    sides = [(one.title, runs[one]) for one in dict.fromkeys([base, chief, *runs])]
    find = runs[base].image_finder()
    for identity in choose(absent[base], absent[chief], list(absent.values())):
        listed = there[identity]
        notes = [f"In it: {', '.join(map(str, listed))}"] if isinstance(listed, list) else []
        page.add(example(identity, sides, find(identity), *notes))


def choose(base: Mapping[Id, int], chief: Mapping[Id, int], all_: Sequence[Mapping[Id, int]]) -> list[Id]:
    """Return the pictures to show: most gained, most lost, and where the methods differ most; ties by id."""
    gain = {one: base[one] - chief[one] for one in base}
    shown = [*highest(gain)[:GAINED], *highest({one: -gained for one, gained in gain.items()})[:LOST]]
    spread = {one: max(found[one] for found in all_) - min(found[one] for found in all_) for one in base}
    apart = [one for one in (*highest(spread), *spread) if one not in shown]
    return [*shown, *apart[:1]]
