"""Calibration size: the table registered again from nested prefixes of the calibration images, sorted by their keys.

b0 is the pooled median of each prefix. The prefix of all images must give the table in use, byte for byte, and reuses its
run. Sizes beyond the calibration images are marked: they need a larger panel.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reweigh.errors import CalibrationError, MismatchError
from reweigh.paper.analyses.sweep import (
    DEPLOYED,
    DRAWN,
    Setting,
    Sweep,
    change_of,
    register,
    settings_of,
    title,
)
from reweigh.paper.answers import BASE, Answers
from reweigh.paper.material import Material
from reweigh.paper.study import Entries, Entry, finding
from reweigh.results.frame import Frame
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

SIZES = (10, 25, 50, 100, 200, 500, 700, 1000)
LARGER = "needs a larger panel of calibration images"
POINT = "tab:operating-points"


class Sizes(Sweep):
    """CHAIR over the number of calibration images."""

    name = "sizes"
    title = "Calibration size"
    labels = ("fig:calibration-size", "tab:calibration-size", POINT)

    def settings(self, material: Material, answers: Answers) -> Iterator[Setting]:
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
                yield Setting(str(size), answers.rank(), counts, DEPLOYED)
            else:
                yield Setting(str(size), answers.run(f"images-{size}", table), counts)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        sizes = [name for name in settings_of(frame) if name != BASE]
        smallest, deployed = sizes[0], deployed_size(frame)
        changes = [change_of(frame, size).text(signed=True, unit=" points") for size in (smallest, deployed)]
        lines = [
            f"The prefix of all {deployed} images gives the table in use byte for byte.",
            f"With {smallest} images, CHAIR_S changes by {changes[0]}; with {deployed}, by {changes[1]}.",
        ]
        if "100" in sizes:
            claim = "100 images are enough to lower CHAIR_S"
            lines.append(finding(claim, change_of(frame, "100"), above=False, unit=" points"))
        return lines

    def draw(self, frame: Frame, path: Path) -> None:
        from reweigh.results.charts import chart, lines

        sizes = [name for name in settings_of(frame) if name != BASE]
        deployed = deployed_size(frame)
        with chart(path, columns=3, height=2.5) as panels:
            for panel, figure in zip(panels, DRAWN, strict=True):
                shown = frame.pick(quantity=figure, against=None)
                lines(
                    panel,
                    {"": [(float(size), shown.one(setting=size)) for size in sizes]},
                    across="calibration images",
                    up=title(figure),
                    level=("base", shown.one(setting=BASE).value),
                    marked=(float(deployed), shown.one(setting=deployed).value),
                )
                panel.set_xscale("log")

    def fill(self, frame: Frame) -> dict[str, Entries]:
        """The sweep, and the table in use beside the paper's operating points."""
        point = {
            Entry("operating point", str(one["quantity"])): one.estimate
            for one in frame.pick(note=DEPLOYED, quantity=("registered", "b0"))
        }
        return {**super().fill(frame), POINT: point}


def deployed_size(frame: Frame) -> str:
    """The size whose table is in use."""
    [size] = frame.pick(note=DEPLOYED).distinct("setting")
    return str(size)


def prefix_table(observations: Observations, size: int, table: ReferenceTable) -> ReferenceTable:
    """The table of the first images of a sorted panel, registered as ``table`` was."""
    return register(observations.only(observations.images[:size]), table)


def require_same(found: ReferenceTable, deployed: ReferenceTable) -> None:
    """Refuse a sweep whose largest prefix is not the table in use."""
    if found.fingerprint != deployed.fingerprint:
        raise MismatchError(
            f"all {found.made_with['images']} calibration images give a table with hash {found.fingerprint[:12]}, the table "
            f"in use has {deployed.fingerprint[:12]}",
            hint="keep the observations beside the table, as `reweigh calibrate` leaves them",
        )
