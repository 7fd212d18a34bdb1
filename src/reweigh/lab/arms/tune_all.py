"""The same budget for every method of a comparison: a small grid over its own options, judged by the rule of ``tune``.

A decoder's class names its grid; every grid has :data:`BUDGET` settings. All settings answer the same tuning records,
and the rule that chooses ReWEIGH's operating point chooses among them. The comparison then has a second, tuned row for
each method, on records that no choice was made on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.lab.arms.compare.methods import BASE, TUNED, Method, decoder_of, make_method, titled
from reweigh.lab.arms.compare.report import CHIEF, short_titles
from reweigh.lab.arms.tune.report import INFO
from reweigh.lab.arms.tune.search import (
    BOUND,
    FIGURES,
    RULE,
    Metrics,
    Point,
    choose,
    judge,
    require_figures,
)
from reweigh.lab.frame import Frame
from reweigh.lab.runs.task import Runs
from reweigh.lab.study import Study, decoder_arm
from reweigh.lab.views.charts import Marks, alt_text, chart, scatter
from reweigh.lab.views.contrast import BRACKETS
from reweigh.lab.views.page import Page
from reweigh.lab.views.report import write_frame
from reweigh.lab.views.table import Cell, Column, Table
from reweigh.text import in_words

BUDGET = 6
"""Settings that each method may try."""
Options = Mapping[str, Any]
ACROSS, UP = "recall", "chair_i"
FRONTIER = "frontier"
"""The drawing's files, as .png and .svg."""


@dataclass(frozen=True)
class Tuning:
    """What every method's settings gave on the tuning records.

    Attributes:
        base: Figures of the base model.
        tried: The settings of each method, in the order of its grid.
        titles: The methods' names as papers write them.
        about: Records, rule and bound.
    """

    base: Metrics
    tried: Mapping[str, Sequence[Point]]
    titles: Mapping[str, str]
    about: Mapping[str, Any]

    def chosen(self, name: str) -> Point | None:
        """Return the chosen setting of a method, if one gains."""
        return choose(self.tried[name])

    def methods(self, loaded: tuple[Any, Any], options: Mapping[str, Options]) -> list[Method]:
        """Return the methods of the comparison with their own options, each followed by its tuned row."""
        found = []
        for name, given in options.items():
            found.append(make_method(name, *loaded, given))
            if name in self.tried:
                found.append(self._tuned(name, loaded, given))
        return found

    def _tuned(self, name: str, loaded: tuple[Any, Any], given: Options) -> Method:
        row, chosen = tuned_name(name), self.chosen(name)
        if chosen is not None:
            return make_method(row, *loaded, {**given, **chosen.setting})
        why = f"none of its {BUDGET} settings improves on the base on the tuning records"
        return Method(row, titled(self.titles[name], TUNED), reason=why)

    def frame(self, found: Frame) -> Frame:
        """Return all figures on the tuning records, with what was chosen."""
        chosen = {name: one and dict(one.setting) for name in self.tried for one in [self.chosen(name)]}
        return Frame(found.rows, {**found.about, **self.about, "chosen": chosen})


def tune_all(
    loaded: tuple[Any, Any],
    options: Mapping[str, Options],
    runs: Runs,
    out: Path,
    *,
    bound: float = BOUND,
) -> Tuning:
    """Answer the tuning records with every setting of every method into folders below ``out``, and judge them.

    A method without a grid, or that the model cannot serve, is not tuned.
    """
    arms = [decoder_arm(BASE, BASE)]
    settings: dict[str, list[Options]] = {}
    titles: dict[str, str] = {}
    for name, given in options.items():
        if tuned_name(name) in options:
            raise InputError(f"{tuned_name(name)} is reserved for the tuned row of {name}", hint="rename it")
        method = make_method(name, *loaded, given)
        if not (own := settings_of(name)) or method.reason is not None:
            continue
        settings[name], titles[name] = own, method.title
        for setting in own:
            merged = {**given, **setting}
            arms.append(decoder_arm(arm_name(name, setting), decoder_of(name), merged))
    study = Study([runs], arms, out, reference=BASE, what="tuning")
    found = study.run(loaded)
    metrics = {name: scored.summary.metrics for name, scored in study.scored[runs.task.name].items()}
    require_figures(metrics[BASE])
    tried = {
        name: [judge(setting, metrics[arm_name(name, setting)], metrics[BASE], bound) for setting in own]
        for name, own in settings.items()
    }
    about = {
        "benchmark": runs.task.metadata,
        "records": len(runs.task.records),
        "seed": runs.seed,
        "budget": BUDGET,
        "bound": bound,
        "rule": RULE,
        "reference": BASE,
    }
    tuning = Tuning(metrics[BASE], tried, titles, about)
    write_frame(tuning.frame(found), out)
    return tuning


def settings_of(name: str) -> list[Options]:
    """Return all combinations of a method's grid."""
    from reweigh.rivals import DECODERS

    grid = DECODERS[decoder_of(name)].grid
    if not grid:
        return []
    names = [option for option, _ in grid]
    return [dict(zip(names, values, strict=True)) for values in product(*(some for _, some in grid))]


def arm_name(name: str, setting: Options) -> str:
    """Return the folder of a setting."""
    return "-".join([name, *(f"{option}-{value}" for option, value in setting.items())])


def tuned_name(name: str) -> str:
    """Return the name of a method's tuned row, a variant of it."""
    return f"{name}-{TUNED}" if "@" in name else f"{name}@{TUNED}"


def add_tuning(page: Page, tuning: Tuning) -> None:
    """Add to a comparison's page what was tried and chosen."""
    caption = (
        f"{INFO[UP].title} over {INFO[ACROSS].title} on {tuning.about['records']:,} tuning records; the lower right is "
        f"better. Each mark is one of a method's {BUDGET} settings; a line joins those that none of its others beats "
        "in both. A ring marks the chosen setting."
    )
    best = {front.name: front.points[0][1] for front in frontiers(tuning)}
    page.section("Every method tuned alike")
    page.chart(partial(_draw, tuning), caption, alt=alt_text(caption, best, 1), height=4.6)
    page.table(settings_table(tuning), fold=0)


def note(tuning: Tuning) -> str:
    """Say who was tuned on what, and by which rule, for the notes of the comparison."""
    on = tuning.about
    return (
        f"Each of {len(tuning.tried)} methods tried {BUDGET} settings of its own options on the same {on['records']:,} "
        f"tuning records of {on['benchmark']['name']}, which are not evaluated on. The rule of reweigh tune chose: the "
        "highest mean of the four relative improvements (CHAIR_S, CHAIR_I, recall, F1) over the base, if F1 falls by no "
        f"more than {on['bound']:g} points."
    )


def frontiers(tuning: Tuning) -> list[Marks]:
    """Return the settings of every method as points, with a line through those that none of its own beats."""
    short = short_titles(list(tuning.titles.values()))
    return [
        Marks(
            short[tuning.titles[name]],
            [_point(one) for one in unbeaten(tried)],
            [_point(one) for one in tried],
            None if (chosen := tuning.chosen(name)) is None else _point(chosen),
            tuning.titles[name] == CHIEF,
        )
        for name, tried in tuning.tried.items()
        if unbeaten(tried)
    ]


def unbeaten(tried: Sequence[Point]) -> list[Point]:
    """Return the settings that no other beats in both CHAIR_I and recall, by rising recall."""
    known = [one for one in tried if None not in _point(one)]

    def beats(one: Point, other: Point) -> bool:
        (recall, wrong), (its_recall, its_wrong) = _point(one), _point(other)
        no_worse = recall >= its_recall and wrong <= its_wrong
        return no_worse and (recall, wrong) != (its_recall, its_wrong)

    kept = [one for one in known if not any(beats(other, one) for other in known)]
    return sorted(kept, key=_point)


def _point(one: Point) -> tuple[Any, Any]:
    return one.metrics[ACROSS].value, one.metrics[UP].value


def settings_table(tuning: Tuning) -> Table:
    """Return the judged figures of every setting, its gain, and what the rule says about it."""
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
    return Table(columns, rows, BRACKETS)


def write_frontier(tuning: Tuning, out: Path) -> list[Path]:
    """Draw the frontier as files."""
    with chart(out / FRONTIER, height=4.6) as panel:
        _draw(tuning, panel, False)
    return [out / f"{FRONTIER}.{ending}" for ending in ("png", "svg")]


def _draw(tuning: Tuning, panel: Any, narrow: bool) -> None:
    base = "base", tuning.base[ACROSS].number, tuning.base[UP].number
    scatter(
        panel,
        frontiers(tuning),
        across=INFO[ACROSS].title,
        up=INFO[UP].title,
        level=base,
        narrow=narrow,
    )
