"""Calibration size: the table registered again from nested prefixes of the calibration images, sorted by their keys.

b0 is the pooled median of each prefix. The prefix of all images must give the table in use, byte for byte, and reuses its
run. Sizes beyond the calibration images are marked: they need a larger panel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reweigh.errors import CalibrationError, MismatchError
from reweigh.method.references import rule_named
from reweigh.paper.analyses.words import finding, show
from reweigh.paper.studies.endtoend import BASE, EndToEnd
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import Row, as_estimate, find
from reweigh.paper.studies.sweep import AGAINST, DRAWN, Setting, Sweep, settings_of, title
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

SIZES = (10, 25, 50, 100, 200, 500, 700, 1000)
LARGER = "needs a larger panel of calibration images"
DEPLOYED = "the table in use"


class Sizes(Sweep):
    """CHAIR over the number of calibration images."""

    name = "sizes"
    title = "Calibration size"
    reproduces = "Fig. calibration-size, Tab. calibration-size"

    def settings(self, material: Material, runs: EndToEnd) -> Iterator[Setting]:
        observations = material.panel()
        panel = len(observations.images)
        for size in sorted({*SIZES, panel}):
            if size > panel:
                yield Setting(str(size), None, note=LARGER)
                continue
            try:
                table = prefix_table(observations, size, material.table)
            except CalibrationError as error:
                yield Setting(str(size), None, note=str(error.message))
                continue
            counts = {"registered": len(table), "b0": table.scale}
            if size == panel:
                require_same(table, material.table)
                yield Setting(str(size), runs.rank(), counts, DEPLOYED)
            else:
                yield Setting(str(size), runs.run(f"images-{size}", table), counts)

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        sizes = [name for name in settings_of(rows) if name != BASE]
        smallest, deployed = sizes[0], str(len(material.calibration))

        def change(size: str) -> str:
            row = find(rows, setting=size, quantity=f"chair_s{AGAINST}")
            return show(row, signed=True, unit=" points")

        lines = [
            f"The prefix of all {deployed} images gives the table in use byte for byte.",
            f"With {smallest} images CHAIR_S changes by {change(smallest)}, with {deployed} by {change(deployed)}.",
        ]
        if "100" in sizes:
            row = find(rows, setting="100", quantity="chair_s" + AGAINST)
            lines.append(finding("100 images lower CHAIR_S already", row, above=False, unit=" points"))
        return lines

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, lines

        sizes = [name for name in settings_of(rows) if name != BASE]
        deployed = next(row["setting"] for row in rows if row["note"] == DEPLOYED)
        with chart(path, columns=3, height=2.5) as panels:
            for panel, figure in zip(panels, DRAWN, strict=True):
                points = [
                    (float(size), as_estimate(find(rows, setting=size, quantity=figure))) for size in sizes
                ]
                base = find(rows, setting=BASE, quantity=figure)["value"]
                mark = (float(deployed), find(rows, setting=deployed, quantity=figure)["value"])
                lines(
                    panel,
                    {"": points},
                    across="calibration images",
                    up=title(figure),
                    level=("base", base),
                    marked=mark,
                )
                panel.set_xscale("log")


def prefix_table(observations: Observations, size: int, table: ReferenceTable) -> ReferenceTable:
    """The table of the first images of a sorted panel, registered as ``table`` was."""
    part = observations.only(observations.images[:size])
    made_with = {**table.made_with, "images": size, "corpus": part.corpus}
    rule = rule_named(str(table.made_with["rule"]))
    return ReferenceTable.build(table.layer, part.register(table.layer, rule=rule), made_with)


def require_same(found: ReferenceTable, deployed: ReferenceTable) -> None:
    """Refuse a sweep whose largest prefix is not the table in use."""
    if found.fingerprint != deployed.fingerprint:
        raise MismatchError(
            f"all {found.made_with['images']} calibration images give a table with hash {found.fingerprint[:12]}, the table "
            f"in use has {deployed.fingerprint[:12]}",
            hint="keep the observations beside the table, as `reweigh calibrate` leaves them",
        )
