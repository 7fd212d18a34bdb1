"""Calibration size: the table registered again from nested prefixes of the calibration images, sorted by their keys.

b0 is the pooled median of each prefix; the operating point is frozen. The prefix of all images must give the table in use,
byte for byte, and reuses its run. Sizes beyond the kept observations are marked: they need a larger panel.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reweigh.errors import CalibrationError, MismatchError
from reweigh.lab.arms.ablate.arms import Variant
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses.sweep import DEPLOYED, DRAWN, Setting, Sweep, change_of, settings_of
from reweigh.lab.paper.material import BASE, Material, register
from reweigh.lab.paper.study import Filled, finding
from reweigh.lab.views.charts import chart, lines, log_axis
from reweigh.tables.table import ReferenceTable

SIZES = (10, 25, 50, 100, 200, 500, 700, 1000)
LARGER = "needs a larger panel of calibration images"
SWEPT, POINT = ("fig:calibration-size", "tab:calibration-size"), "tab:operating-points"


class Sizes(Sweep):
    """CHAIR over the number of calibration images."""

    name = "sizes"
    title = "Calibration size"
    labels = (*SWEPT, POINT)

    def settings(self, material: Material) -> Iterator[Setting]:
        panel = material.panel()
        count = len(panel.images)
        for size in sorted({*SIZES, count}):
            if size > count:
                yield Setting(str(size), None, note=LARGER)
                continue
            try:
                table = register(panel.only(panel.images[:size]), material.table)
            except CalibrationError as error:
                yield Setting(str(size), None, note=str(error.message))
                continue
            counts = {"registered": len(table), "b0": table.b0}
            if size == count:
                require_same(table, material.table)
                yield Setting(str(size), material.rank(), counts, DEPLOYED)
            else:
                yield Setting(str(size), material.run(Variant(f"images-{size}", table)), counts)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        sizes, deployed = settings_of(frame), deployed_size(frame)
        changes = [change_of(frame, size).text(signed=True, unit=" points") for size in (sizes[0], deployed)]
        told = [
            f"All {deployed} images give the table in use, byte for byte.",
            f"With {sizes[0]} images, CHAIR_S changes by {changes[0]}; with {deployed}, by {changes[1]}.",
        ]
        if "100" in sizes:
            claim = "100 images are enough to lower CHAIR_S"
            told.append(finding(claim, change_of(frame, "100"), above=False, unit=" points"))
        return told

    def draw(self, frame: Frame, path: Path) -> None:
        deployed = deployed_size(frame)
        with chart(path, columns=len(DRAWN), height=2.5) as panels:
            for panel, (figure, label) in zip(panels, DRAWN.items(), strict=True):
                shown = frame.pick(quantity=figure, against=None)
                lines(
                    panel,
                    {"": [(float(size), shown.one(setting=size)) for size in settings_of(frame)]},
                    across="calibration images",
                    up=label,
                    level=("base", shown.one(setting=BASE).value),
                    marked=(float(deployed), shown.one(setting=deployed).value),
                )
                log_axis(panel)
                panel.margins(x=0.15)

    def entries(self, frame: Frame) -> Iterator[Filled]:
        """Fill in the sweep, and the table in use beside the paper's operating points."""
        for one in super().entries(frame):
            for label in SWEPT:
                yield one._replace(label=label)
        for point in frame.pick(note=DEPLOYED, quantity=("registered", "b0")):
            yield Filled("operating point", str(point["quantity"]), point.estimate, POINT)


def deployed_size(frame: Frame) -> str:
    """Return the size whose table is in use."""
    [size] = frame.pick(note=DEPLOYED).distinct("setting")
    return str(size)


def require_same(found: ReferenceTable, deployed: ReferenceTable) -> None:
    """Refuse a sweep whose largest prefix does not give the table in use."""
    if found.fingerprint != deployed.fingerprint:
        raise MismatchError(
            f"all {found.about['images']} calibration images give a table with hash {found.fingerprint[:12]}, the table "
            f"in use has {deployed.fingerprint[:12]}",
            hint="keep the observations beside the table, as `reweigh calibrate` leaves them",
        )
