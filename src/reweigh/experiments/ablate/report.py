"""A finished ablation for people and programs: tables in Markdown and LaTeX, a page, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.estimate import Estimate
from reweigh.experiments.ablate.arms import FULL
from reweigh.experiments.ablate.prepare import Prepared
from reweigh.experiments.ablate.table import (
    EXPLAINED,
    INTERVALS,
    PAIRED,
    PARTS,
    Row,
    build_json,
    build_page,
    build_table,
)
from reweigh.experiments.experiment import write_frame
from reweigh.files.artifacts import write_text
from reweigh.files.seals import write_sealed
from reweigh.results import frame
from reweigh.results.frame import AGAINST, Frame, Key
from reweigh.results.table import Table

FILES = ("ablation.md", "ablation.tex", "report.html", "ablation.json")


@dataclass(frozen=True)
class Report:
    """The rows of an ablation and what it was made with.

    Attributes:
        rows: One for each run.
        prepared: Table, beta and arms.
        about: Model, benchmark, records and seed, as the JSON keeps them.
    """

    rows: Sequence[Row]
    prepared: Prepared
    about: Mapping[str, Any]

    @property
    def lead(self) -> str:
        """The model, the records and the operating point in one line."""
        on, made = self.about, self.prepared
        return (
            f"{on['model']}, {on['records']:,} records of {on['benchmark']['name']}, layer {made.table.layer}, "
            f"beta {made.beta:g}."
        )

    def words(self) -> str:
        """What a reader must know to read the tables."""
        return " ".join([self.lead, INTERVALS, PAIRED, EXPLAINED, *self.prepared.sets])

    def tables(self) -> list[Table]:
        """The columns in parts: figures, differences, edits."""
        return [build_table(self.rows, "", names=names) for names in PARTS]

    def to_json(self) -> dict[str, Any]:
        """The ablation for a program."""
        made = self.prepared
        about = {
            **self.about,
            "layer": made.table.layer,
            "beta": made.beta,
            "table_sha256": made.table.fingerprint,
            "registered": {arm.name: len(arm.table) for arm in made.arms},
        }
        return build_json(self.rows, about, made.left_out)

    def write(self, out: Path) -> list[Path]:
        """Write the tables, the page and the numbers."""
        tables = self.tables()
        write_text(out / FILES[0], "\n".join([*(one.markdown() for one in tables), f"{self.words()}\n"]))
        write_text(out / FILES[1], "\n".join([f"% {self.words()}", *(one.latex() for one in tables)]))
        write_text(out / FILES[2], build_page(self.rows, self.lead, INTERVALS, self.prepared.left_out))
        write_sealed(out / FILES[3], self.to_json())
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
                    frame.Row({**keys, "figure": name, AGAINST: against}, one)
                    for name, one in numbers.items()
                ]
        arms = {
            arm.name: {**arm.record(), "table_sha256": arm.table.fingerprint} for arm in self.prepared.arms
        }
        about = {key: value for key, value in self.to_json().items() if key not in ("arms", "shuffled")}
        return Frame(found, {**about, "reference": FULL, "arms": arms})
