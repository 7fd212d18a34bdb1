"""The results of an ablation: metrics of every arm, paired differences to the full method, what its edits were like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from reweigh.benchmarks.base import MetricInfo, find_metric
from reweigh.benchmarks.bootstrap import paired_difference
from reweigh.benchmarks.chair.metrics import METRICS, figures
from reweigh.estimate import Estimate
from reweigh.experiments.ablate.arms import FULL, SHUFFLED, WORDS
from reweigh.experiments.experiment import Files
from reweigh.results.frame import AGAINST, Frame, Key, Row
from reweigh.results.page import Page
from reweigh.results.table import Cell, Column, Table
from reweigh.runs.diff import repetition
from reweigh.runs.task import Scored

if TYPE_CHECKING:
    from reweigh.experiments.ablate.run import Plan

BASE = "base"
FILES = Files(("ablation.md", "ablation.tex", "report.html"), "ablation.json")
FIGURES = ("chair_s", "chair_i", "chair_i_distinct", "recall", "f1")
DIFFERENCES = tuple(f"{name}_difference" for name in FIGURES)
EDITS = ("fire", "escapes", "length", "mentions", "repetition")
DRAWN = ("chair_i", "f1")
INFO: Mapping[str, MetricInfo] = {name: find_metric(METRICS, name) for name in FIGURES}
COLUMNS = {
    **{name: Column(info.title, info.direction, 2, ranked=False) for name, info in INFO.items()},
    **{f"{name}_difference": Column(f"Δ {INFO[name].title}", digits=2, signed=True) for name in FIGURES},
    "fire": Column("fire %"),
    "escapes": Column("escapes"),
    "length": Column("words"),
    "mentions": Column("mentions"),
    "repetition": Column("repeats"),
}
INTERVALS = "Brackets are 95% image-bootstrap intervals."
PAIRED = "Δ is arm minus full method, the same images drawn for both."
EXPLAINED = (
    "Fire is the share of candidate positions that are edited, escapes are edits larger than beta, repeats is how "
    "often one description names one object at most."
)


@dataclass(frozen=True)
class ArmResult:
    """One run of the ablation.

    Attributes:
        name: Its folder.
        kind: Its arm; permutations share one.
        metrics: Figures of the run.
        difference: Arm minus full method, drawing the same images for both; empty for the full method.
        edits: Candidate positions, edits and edits beyond the bound; ``None`` for the base.
        repetition: How often one object is named in one description, at most.
    """

    name: str
    kind: str
    metrics: Mapping[str, Estimate]
    difference: Mapping[str, Estimate]
    edits: Mapping[str, int] | None
    repetition: int

    @classmethod
    def of(
        cls, name: str, kind: str, run: Scored, full: Scored, edits: Mapping[str, int] | None
    ) -> ArmResult:
        """A row from scored runs of an arm and of the full method."""
        found = {} if kind == FULL else paired_difference(full.items, run.items, figures)
        difference = {name: found[name] for name in FIGURES if name in found}
        return cls(
            name, kind, run.summary.metrics, difference, edits, max(map(repetition, run.items), default=0)
        )

    @property
    def fire(self) -> float | None:
        """Share of candidate positions that are edited, in percent."""
        if self.edits is None or not self.edits["candidates"]:
            return None
        return 100.0 * self.edits["edits"] / self.edits["candidates"]

    def values(self) -> dict[str, Estimate | float | None]:
        """Every number of the row by the name of its column."""
        return {
            **{name: self.metrics[name] for name in FIGURES},
            **{f"{name}_difference": self.difference.get(name) for name in FIGURES},
            "fire": self.fire,
            "escapes": None if self.edits is None else self.edits["escapes"],
            **{name: self.metrics[name].value for name in ("length", "mentions")},
            "repetition": self.repetition,
        }

    def to_json(self) -> dict[str, Any]:
        """The row for a program."""
        return {
            "arm": self.name,
            "changes": WORDS.get(self.kind, "no edit at all"),
            **{name: self.metrics[name].to_json() for name in (*FIGURES, "length", "mentions")},
            "difference": {name: metric.to_json() for name, metric in self.difference.items()},
            "fire": self.fire,
            "edits": None if self.edits is None else dict(self.edits),
            "repetition": self.repetition,
        }


def spread(rows: Sequence[ArmResult]) -> dict[str, dict[str, float | None]]:
    """Mean, lowest and highest of every number over permutations; ``None`` where one of them has none."""
    found: dict[str, dict[str, float | None]] = {"mean": {}, "lowest": {}, "highest": {}}
    for name in COLUMNS:
        cells = [row.values()[name] for row in rows]
        numbers = [one.value if isinstance(one, Estimate) else one for one in cells]
        known = [float(one) for one in numbers if one is not None]
        for what, number in (("mean", fmean), ("lowest", min), ("highest", max)):
            found[what][name] = number(known) if len(known) == len(rows) else None
    return found


@dataclass(frozen=True)
class AblationReport:
    """The rows of an ablation and what it was made with.

    Attributes:
        rows: One for each run.
        plan: Table, beta and variants.
        about: Model, benchmark, records and seed, as the JSON keeps them.
    """

    rows: Sequence[ArmResult]
    plan: Plan
    about: Mapping[str, Any]

    def table(self, names: Sequence[str], caption: str = "") -> Table:
        """Some columns of all arms; permutations are followed by their mean and range."""
        body: list[list[Cell]] = []
        shuffles = [row for row in self.rows if row.kind == SHUFFLED]
        for row in self.rows:
            cells = row.values()
            body.append([row.name, *(cells[name] for name in names)])
            if shuffles and row is shuffles[-1]:
                body += [
                    [f"{SHUFFLED}, {what}", *(numbers[name] for name in names)]
                    for what, numbers in spread(shuffles).items()
                ]
        return Table([Column("arm"), *(COLUMNS[name] for name in names)], body, caption)

    def page(self) -> Page:
        """The tables, the differences drawn, and what each arm changes."""
        on, made = self.about, self.plan
        lead = (
            f"{on['model']}, {on['records']:,} records of {on['benchmark']['name']}, layer {made.table.layer}, "
            f"beta {made.beta:g}."
        )
        page = Page("Ablation of ReWEIGH", lead=lead, footer="Written by reweigh ablate.")
        page.section("Figures").table(self.table(FIGURES, INTERVALS))
        page.section("Difference to the full method").table(self.table(DIFFERENCES, PAIRED))
        for name in DRAWN:
            drawn = {
                row.name: one
                for row in self.rows
                if (one := row.difference.get(name)) is not None and one.bounded
            }
            words = f"{INFO[name].title}, arm minus full method, with paired 95% intervals."
            page.intervals(drawn, words, zero=True, digits=2)
        page.section("Edits and texts").table(self.table(EDITS, EXPLAINED)).text(*made.sets)
        kinds = dict.fromkeys(row.kind for row in self.rows if row.kind in WORDS)
        changes: list[list[Cell]] = [[kind, WORDS[kind]] for kind in kinds]
        changes += [[kind, f"left out: {why}"] for kind, why in made.left_out.items()]
        return page.section("What each arm changes").table(Table([Column("arm"), Column("changes")], changes))

    def to_json(self) -> dict[str, Any]:
        """The ablation for a program."""
        made = self.plan
        drawn = [row for row in self.rows if row.kind == SHUFFLED]
        return {
            **self.about,
            "layer": made.table.layer,
            "beta": made.beta,
            "table_sha256": made.table.fingerprint,
            "registered": {arm.name: len(arm.table) for arm in made.variants},
            "arms": [row.to_json() for row in self.rows],
            "shuffled": spread(drawn) if drawn else {},
            "left_out": dict(made.left_out),
        }

    def write(self, out: Path) -> list[Path]:
        """Write the page, the numbers and the frame."""
        return FILES.write(out, self.page(), self.to_json(), self.frame())

    def frame(self) -> Frame:
        """Every number of every arm, and the paired differences to the full method."""
        benchmark = self.about["benchmark"]["name"]
        found = []
        for row in self.rows:
            keys: dict[str, Key] = {"benchmark": benchmark, "arm": row.name}
            plain = {"fire": row.fire, "repetition": row.repetition, **(row.edits or {})}
            values = {**row.metrics, **{name: Estimate(value) for name, value in plain.items()}}
            for against, numbers in ((None, values), (FULL, row.difference)):
                found += [
                    Row({**keys, "figure": name, AGAINST: against}, one) for name, one in numbers.items()
                ]
        arms = {
            arm.name: {**arm.record(), "table_sha256": arm.table.fingerprint} for arm in self.plan.variants
        }
        about = {key: value for key, value in self.to_json().items() if key not in ("arms", "shuffled")}
        return Frame(found, {**about, "reference": FULL, "arms": arms})
