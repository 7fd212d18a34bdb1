"""The results of an ablation: figures of every arm, paired differences to the full method, what its edits were like.

``AblationReport`` writes them as tables in Markdown and LaTeX, a page, JSON and a frame.
"""

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
from reweigh.experiments.experiment import FRAME, write_frame
from reweigh.files.outputs import claim, write_output, write_sealed_output
from reweigh.results.frame import AGAINST, Frame, Key, Row
from reweigh.results.html import element
from reweigh.results.page import Page
from reweigh.results.table import Cell, Column, Table
from reweigh.runs.diff import repetition
from reweigh.runs.task import Scored

if TYPE_CHECKING:
    from reweigh.experiments.ablate.study import Plan

BASE = "base"
FILES = ("ablation.md", "ablation.tex", "report.html", "ablation.json")
FIGURES = ("chair_s", "chair_i", "chair_i_distinct", "recall", "f1")
DRAWN = ("chair_i", "f1")
INFO: Mapping[str, MetricInfo] = {name: find_metric(METRICS, name) for name in FIGURES}
COLUMNS = {
    **{name: Column(info.title, info.direction, 2) for name, info in INFO.items()},
    **{f"{name}_difference": Column(f"Δ {INFO[name].title}", digits=2, signed=True) for name in FIGURES},
    "fire": Column("fire %"),
    "escapes": Column("escapes"),
    "length": Column("words"),
    "mentions": Column("mentions"),
    "repetition": Column("repeats"),
}
DIFFERENCES = tuple(f"{name}_difference" for name in FIGURES)
PARTS = (FIGURES, DIFFERENCES, ("fire", "escapes", "length", "mentions", "repetition"))
"""The columns in parts that fit a terminal."""
INTERVALS = "Brackets are 95% image-bootstrap intervals; the full method is bold."
PAIRED = "Δ is arm minus full method, the same images drawn for both."
EXPLAINED = (
    "Fire is the share of candidate positions that are edited, escapes are edits larger than beta, repeats is how "
    "often one description names one object at most."
)


def claim_files(out: Path, *, force: bool = False) -> None:
    """Refuse a folder with files of others under the names that an ablation writes."""
    claim([out / name for name in (*FILES, FRAME)], force=force, beside=out / FILES[-1])


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

    def values(self) -> dict[str, float | None]:
        """Every number of the row by its name, without intervals."""
        return {
            **{name: self.metrics[name].value for name in FIGURES},
            **{f"{name}_difference": _value(self.difference.get(name)) for name in FIGURES},
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
    for name in rows[0].values():
        numbers = [float(value) for row in rows if (value := row.values()[name]) is not None]
        whole = len(numbers) == len(rows)
        for what, number in (("mean", fmean), ("lowest", min), ("highest", max)):
            found[what][name] = number(numbers) if whole else None
    return found


def build_table(rows: Sequence[ArmResult], caption: str, *, names: Sequence[str] = tuple(COLUMNS)) -> Table:
    """The table, or some of its columns; the full method is marked, permutations are followed by their mean and range."""
    body: list[list[Cell]] = []
    marked = None
    for i, row in enumerate(rows):
        cells: dict[str, Cell] = {**row.values(), **{name: row.metrics[name] for name in FIGURES}}
        cells |= {f"{name}_difference": metric for name, metric in row.difference.items()}
        marked = len(body) if row.kind == FULL else marked
        body.append([row.name, *(cells[name] for name in names)])
        last = i + 1 == len(rows) or rows[i + 1].kind != row.kind
        if row.kind == SHUFFLED and last:
            every = spread([one for one in rows if one.kind == SHUFFLED])
            body += [
                [f"{SHUFFLED}, {what}", *(numbers[name] for name in names)] for what, numbers in every.items()
            ]
    return Table([Column("arm"), *(COLUMNS[name] for name in names)], body, caption, marked)


def build_json(
    rows: Sequence[ArmResult], about: Mapping[str, Any], left_out: Mapping[str, str]
) -> dict[str, Any]:
    """The ablation for a program."""
    drawn = [row for row in rows if row.kind == SHUFFLED]
    return {
        **about,
        "arms": [row.to_json() for row in rows],
        "shuffled": spread(drawn) if drawn else {},
        "left_out": dict(left_out),
    }


def build_page(rows: Sequence[ArmResult], lead: str, caption: str, left_out: Mapping[str, str]) -> str:
    """A page that needs no other file: the table in two parts, the differences drawn, what each arm changes."""
    made = Page("Ablation of ReWEIGH", lead=lead, footer="Written by reweigh ablate.")
    made.section("Figures").table(build_table(rows, caption, names=PARTS[0]))
    made.section("Difference to the full method").table(build_table(rows, PAIRED, names=PARTS[1]))
    for name in DRAWN:
        drawn = {
            row.name: one for row in rows if (one := row.difference.get(name)) is not None and one.bounded
        }
        words = f"{INFO[name].title}, arm minus full method, with paired 95% intervals."
        made.intervals(drawn, words, zero=True, digits=2)
    made.section("Edits and texts").table(build_table(rows, EXPLAINED, names=PARTS[2]))
    kinds = dict.fromkeys(row.kind for row in rows if row.kind in WORDS)
    notes = [element("li", element("b", kind), f": {WORDS[kind]}") for kind in kinds]
    notes += [element("li", element("b", kind), f": left out, {why}") for kind, why in left_out.items()]
    return made.section("What each arm changes").add(element("ul", *notes)).html()


def _value(metric: Estimate | None) -> float | None:
    return None if metric is None else metric.value


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

    @property
    def lead(self) -> str:
        """The model, the records and the operating point in one line."""
        on, made = self.about, self.plan
        return (
            f"{on['model']}, {on['records']:,} records of {on['benchmark']['name']}, layer {made.table.layer}, "
            f"beta {made.beta:g}."
        )

    def words(self) -> str:
        """What a reader must know to read the tables."""
        return " ".join([self.lead, INTERVALS, PAIRED, EXPLAINED, *self.plan.sets])

    def tables(self) -> list[Table]:
        """The columns in parts: figures, differences, edits."""
        return [build_table(self.rows, "", names=names) for names in PARTS]

    def to_json(self) -> dict[str, Any]:
        """The ablation for a program."""
        made = self.plan
        about = {
            **self.about,
            "layer": made.table.layer,
            "beta": made.beta,
            "table_sha256": made.table.fingerprint,
            "registered": {arm.name: len(arm.table) for arm in made.variants},
        }
        return build_json(self.rows, about, made.left_out)

    def write(self, out: Path) -> list[Path]:
        """Write the tables, the page and the numbers."""
        tables = self.tables()
        claim_files(out)
        write_output(out / FILES[0], "\n".join([*(one.markdown() for one in tables), f"{self.words()}\n"]))
        write_output(out / FILES[1], "\n".join([f"% {self.words()}", *(one.latex() for one in tables)]))
        write_output(out / FILES[2], build_page(self.rows, self.lead, INTERVALS, self.plan.left_out))
        write_sealed_output(out / FILES[3], self.to_json())
        return [*(out / name for name in FILES), write_frame(self.frame(), out)]

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
