"""The results of an ablation: metrics of every arm, paired differences to the full method, statistics of its edits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from reweigh.lab.arms.ablate.arms import FULL, SHUFFLED, WORDS
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame, Key, Row
from reweigh.lab.runs.diff import repetition
from reweigh.lab.tasks.base import Item, find_metric
from reweigh.lab.tasks.chair.metrics import METRICS
from reweigh.lab.views.contrast import Contrast
from reweigh.lab.views.page import Page
from reweigh.lab.views.report import Report
from reweigh.lab.views.table import Cell, Column, Table

if TYPE_CHECKING:
    from reweigh.lab.arms.ablate.run import Plan

BASE = "base"
FILES = ("ablation.md", "ablation.tex", "report.html", "ablation.json")
FIGURES = ("chair_s", "chair_i", "chair_i_distinct", "recall", "f1")
DRAWN = ("chair_i", "f1")
COUNTED = ("candidates", "edits", "escapes", "steps", "edited_steps", "escaped_steps")
"""What is counted of an arm's edits: (step, candidate) pairs, and decoding steps."""
INFO = {name: find_metric(METRICS, name) for name in FIGURES}
EDITS = {
    "fire_steps": Column("fire, % of steps"),
    "fire_candidates": Column("fire, % of candidates"),
    "escaped_steps": Column("escapes, steps"),
    "escapes": Column("escapes, candidates"),
    "length": Column("words"),
    "mentions": Column("mentions"),
    "repetition": Column("repeats"),
}
EXPLAINED = (
    "Fire is the share of decoding steps at which a candidate is edited, and of all candidates of all steps; escapes are "
    "penalties larger than beta, counted both ways (a raised logit is none); repeats is the largest number of times that "
    "one description names the same object."
)
SPREAD: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "lowest": min, "highest": max}


@dataclass(frozen=True)
class Ablation:
    """An ablation and what it was made with.

    Attributes:
        found: Every figure of the base and of every arm, and the differences to the full method.
        plan: Table, beta and variants.
        about: Model, benchmark, records and seed, as the JSON keeps them.
    """

    found: Frame
    plan: Plan
    about: Mapping[str, Any]

    def report(self) -> Report:
        """Return the page, the numbers and the frame."""
        numbers = self.to_json()
        about = {key: value for key, value in numbers.items() if key not in ("arms", "shuffled")}
        arms = {
            arm.name: {**arm.record(), "table_sha256": arm.table.fingerprint} for arm in self.plan.variants
        }
        frame = Frame(self.found.rows, {**self.found.about, **about, "reference": FULL, "arms": arms})
        return Report(FILES, self.page(), numbers, frame)

    @property
    def arms(self) -> dict[str, str]:
        """The kind of each arm; permutations share one."""
        return {BASE: BASE, **{one.name: one.kind for one in self.plan.variants}}

    @cached_property
    def shown(self) -> Frame:
        """The figures with mean, lowest and highest of the permutations; no value where one of them has none."""
        permuted = [arm for arm, kind in self.arms.items() if kind == SHUFFLED]
        rows = []
        for what, number in SPREAD.items() if permuted else ():
            for against, names in ((None, (*FIGURES, *EDITS)), (FULL, FIGURES)):
                for name in names:
                    values = [
                        one.value if (one := self._find(arm, name, against)) else None for arm in permuted
                    ]
                    known = [value for value in values if value is not None]
                    spread = float(number(known)) if len(known) == len(values) else None
                    rows.append(Row(self._keys(f"{SHUFFLED}, {what}", name, against), Estimate(spread)))
        return Frame([*self.found, *rows])

    def _keys(self, arm: str, figure: str, against: str | None) -> dict[str, Key]:
        return {"benchmark": self.about["benchmark"]["name"], "arm": arm, "figure": figure, AGAINST: against}

    def _find(self, arm: str, figure: str, against: str | None = None) -> Estimate | None:
        return self.found.get(**self._keys(arm, figure, against))

    @cached_property
    def contrast(self) -> Contrast:
        """The arms compared with the full method; permutations are followed by their mean and range."""
        titles: list[str] = []
        for kind in dict.fromkeys(self.arms.values()):
            titles += [arm for arm, its in self.arms.items() if its == kind]
            titles += [f"{SHUFFLED}, {what}" for what in SPREAD if kind == SHUFFLED]
        columns = {name: Column(info.title, info.direction, 2, ranked=False) for name, info in INFO.items()}
        benchmark = self.about["benchmark"]["name"]
        return Contrast(
            self.shown,
            [(title, {"benchmark": benchmark, "arm": title}) for title in titles],
            [(column, {"figure": name}) for name, column in columns.items()],
            reference=FULL,
            base=titles.index(FULL),
            kind="arm",
            versus="the full method",
        )

    @property
    def edits(self) -> Table:
        """What the edits and texts of every arm are like."""
        columns = [(column, {"figure": name}) for name, column in EDITS.items()]
        return replace(replace(self.contrast, columns=columns).values, caption=EXPLAINED)

    def page(self) -> Page:
        """Return the tables, the differences drawn, and what each arm changes."""
        on, made = self.about, self.plan
        lead = (
            f"{on['model']}, {on['records']:,} records of {on['benchmark']['name']}, layer {made.table.layer}, "
            f"beta {made.beta:g}."
        )
        page = Page("Ablation of ReWEIGH", lead=lead, footer="Written by reweigh ablate.")
        self.contrast.add_to(page)
        for name in DRAWN:
            drawn = {arm: one for arm in self.arms if (one := self._find(arm, name, FULL)) and one.bounded}
            words = f"{INFO[name].title}, arm minus full method, with paired 95% intervals."
            page.intervals(drawn, words, zero=True, digits=2)
        page.section("Edits and texts").table(self.edits).text(*made.sets)
        kinds = dict.fromkeys(kind for kind in self.arms.values() if kind in WORDS)
        changes: list[list[Cell]] = [[kind, WORDS[kind]] for kind in kinds]
        changes += [[kind, f"left out: {why}"] for kind, why in made.left_out.items()]
        return page.section("What each arm changes").table(Table([Column("arm"), Column("changes")], changes))

    def to_json(self) -> dict[str, Any]:
        """Return the ablation for a program."""
        made = self.plan
        return {
            **self.about,
            "layer": made.table.layer,
            "beta": made.beta,
            "table_sha256": made.table.fingerprint,
            "registered": {arm.name: len(arm.table) for arm in made.variants},
            "arms": [self._arm(arm, kind) for arm, kind in self.arms.items()],
            "shuffled": self._spread() if SHUFFLED in self.arms.values() else {},
            "left_out": dict(made.left_out),
        }

    def _arm(self, arm: str, kind: str) -> dict[str, Any]:
        def numbers(names: Sequence[str], against: str | None = None) -> dict[str, Estimate]:
            return {name: one for name in names if (one := self._find(arm, name, against)) is not None}

        counted = {name: one.value for name, one in numbers(COUNTED).items()}
        return {
            "arm": arm,
            "changes": WORDS.get(kind, "no edit at all"),
            **{name: one.to_json() for name, one in numbers((*FIGURES, "length", "mentions")).items()},
            "difference": {name: one.to_json() for name, one in numbers(FIGURES, FULL).items()},
            **{
                name: one.value
                for name, one in numbers(("fire_steps", "fire_candidates", "repetition")).items()
            },
            "edits": counted or None,
        }

    def _spread(self) -> dict[str, dict[str, float | None]]:
        found: dict[str, dict[str, float | None]] = {}
        for what in SPREAD:
            rows = self.shown.pick(arm=f"{SHUFFLED}, {what}")
            found[what] = {
                f"{row['figure']}_difference" if row[AGAINST] else str(row["figure"]): row.estimate.value
                for row in rows
            }
        return found


def edit_rows(keys: Mapping[str, Key], edits: Mapping[str, int] | None, items: Sequence[Item]) -> list[Row]:
    """Return statistics of an arm's edits as rows of a frame; the base has none.

    Repetition is how often one description names one object, at most.
    """

    def share(part: str, whole: str) -> float | None:
        return 100.0 * edits[part] / edits[whole] if edits and edits[whole] else None

    found = {
        "fire_steps": share("edited_steps", "steps"),
        "fire_candidates": share("edits", "candidates"),
        "repetition": max(map(repetition, items), default=0),
        **(edits or {}),
    }
    return [Row({**keys, "figure": name, AGAINST: None}, Estimate(one)) for name, one in found.items()]
