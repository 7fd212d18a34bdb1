"""A tuning of all methods for people: every setting with its figures, and the frontier of each method."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import find_metric
from reweigh.benchmarks.chair.metrics import METRICS
from reweigh.experiments.compare.table import CHIEF
from reweigh.experiments.tune.search import FIGURES
from reweigh.experiments.tune_all.study import BUDGET, Tried, Tuning
from reweigh.results.charts import Front, alt_text, chart, fronts, inline
from reweigh.results.html import Html, element, section
from reweigh.results.table import Cell, Column, Table
from reweigh.text import in_words

ACROSS, UP = "recall", "chair_i"
FRONTIER = "frontier"
"""The drawing's files, as .png and .svg."""
INFO = {name: find_metric(METRICS, name) for name in FIGURES}


def tuning_section(tuning: Tuning) -> list[Html]:
    """The part of a comparison's page that says what was tried and chosen."""
    caption = frontier_caption(tuning)
    best = {front.name: front.points[0][1] for front in frontiers(tuning)}
    drawing = inline(partial(_draw, tuning), alt=alt_text(caption, best, 1), height=4.6)
    table = settings_table(tuning)
    listed = element("details", element("summary", f"All {len(table.rows) - 1} settings"), table.html())
    figure = element("figure", drawing, element("figcaption", caption))
    return [section("Every method tuned alike", figure, listed)]


def note(tuning: Tuning) -> str:
    """Who was tuned on what, and by which rule, for the notes of the comparison."""
    on = tuning.about
    return (
        f"Each of {len(tuning.tried)} methods tried {BUDGET} settings of its own options on the same {on['records']:,} "
        f"tuning records of {on['benchmark']['name']}, none of which is evaluated on. The rule of reweigh tune chose: the "
        "highest mean of the four relative improvements (CHAIR_S, CHAIR_I, recall, F1) over the base, if F1 falls by no "
        f"more than {on['bound']:g} points."
    )


def frontier_caption(tuning: Tuning) -> str:
    """What the drawing shows."""
    return (
        f"{INFO[UP].title} over {INFO[ACROSS].title} on {tuning.about['records']:,} tuning records; the lower right is "
        f"better. Each mark is one of a method's {BUDGET} settings; a line joins those that none of its others beats "
        "in both. A ring marks the chosen setting."
    )


def frontiers(tuning: Tuning) -> list[Front]:
    """The settings of every method as points, the ones that none of its own beats first."""
    return [
        Front(
            tuning.titles[name].partition(" (")[0],
            [_point(one) for one in unbeaten(tried)],
            [_point(one) for one in tried],
            None if (chosen := tuning.chosen(name)) is None else _point(chosen),
            tuning.titles[name] == CHIEF,
        )
        for name, tried in tuning.tried.items()
        if unbeaten(tried)
    ]


def unbeaten(tried: Sequence[Tried]) -> list[Tried]:
    """The settings that no other has both a lower CHAIR_I and a higher recall than, by rising recall."""
    known = [one for one in tried if None not in _point(one)]

    def beats(one: Tried, other: Tried) -> bool:
        (recall, wrong), (its_recall, its_wrong) = _point(one), _point(other)
        no_worse = recall >= its_recall and wrong <= its_wrong
        return no_worse and (recall, wrong) != (its_recall, its_wrong)

    kept = [one for one in known if not any(beats(other, one) for other in known)]
    return sorted(kept, key=_point)


def _point(one: Tried) -> tuple[Any, Any]:
    return one.metrics[ACROSS].value, one.metrics[UP].value


def settings_table(tuning: Tuning) -> Table:
    """Every setting under the judged figures, with its gain and what the rule says of it."""
    columns = [Column("method"), Column("setting")]
    columns += [Column(INFO[name].title, INFO[name].direction, ranked=False) for name in FIGURES]
    columns += [Column("gain %", digits=1, signed=True), Column("")]
    rows: list[list[Cell]] = [["base", "", *(tuning.base[name] for name in FIGURES), None, ""]]
    for name, tried in tuning.tried.items():
        for one in tried:
            said = "chosen" if one is tuning.chosen(name) else ("" if one.eligible else "F1 falls too far")
            gained = None if one.gain is None else 100 * one.gain
            figures = (one.metrics[figure] for figure in FIGURES)
            rows.append([tuning.titles[name], in_words(one.setting), *figures, gained, said])
    return Table(columns, rows, caption="Brackets are 95% image-bootstrap intervals.")


def write_frontier(tuning: Tuning, out: Path) -> list[Path]:
    """Draw the frontier as files."""
    with chart(out / FRONTIER, height=4.6) as panel:
        _draw(tuning, panel, False)
    return [out / f"{FRONTIER}.{ending}" for ending in ("png", "svg")]


def _draw(tuning: Tuning, panel: Any, narrow: bool) -> None:
    base = "base", tuning.base[ACROSS].number, tuning.base[UP].number
    fronts(panel, frontiers(tuning), across=INFO[ACROSS].title, up=INFO[UP].title, level=base)
