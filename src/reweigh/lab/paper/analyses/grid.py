"""Layer and beta: the grid that the operating point was chosen from, with the chosen point marked.

Nothing is run: the grid is that of a finished ``reweigh tune MODEL -o STUDY/tuning``, or the one that ships with the
embedded model. Its records are those of the tuning split, not the evaluation's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reweigh.files.artifacts import sha256_json
from reweigh.files.seals import read_sealed
from reweigh.lab.arms.tune.report import POINT
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses.sweep import DRAWN
from reweigh.lab.paper.material import BASE, FIGURES, Material
from reweigh.lab.paper.study import Filled, Study, row
from reweigh.lab.views.charts import chart, lines
from reweigh.world import operating_point

FOLDER = "tuning"
CHOSEN = "chosen"


def read_grid(material: Material) -> dict[str, Any] | None:
    """Read the finished search beside the runs, else the shipped one; None if it did not try the table in use."""
    found = material.beside(FOLDER) / POINT
    page = read_sealed(found) if found.is_file() else operating_point()
    return page if material.table.fingerprint in page["chosen_on"]["table_sha256"].values() else None


def a_search(material: Material) -> str | None:
    """Require a finished search with the table in use."""
    if read_grid(material) is None:
        return (
            "no search for an operating point was run with the table in use; run "
            f"`reweigh tune MODEL -b chair -o STUDY/{FOLDER}` first"
        )
    return None


class Grid(Study):
    """CHAIR over layer and beta."""

    name = "grid"
    title = "Layer and beta"
    labels = ("fig:ablation-layer-beta", "tab:layer-beta-grid")
    keys = (
        ("layer", "0-based block; empty for the base"),
        ("beta", "maximum penalty; 0 for the base"),
        ("quantity", "a figure of the tuning records"),
        ("note", "whether it is the base or the chosen point"),
    )
    needs = (a_search,)

    def inputs(self, material: Material) -> dict[str, str]:
        return {"grid": sha256_json(found)} if (found := read_grid(material)) else {}

    def compute(self, material: Material) -> Frame:
        found = read_grid(material) or {}
        chosen = found["layer"], found["beta"]
        points = [(None, 0.0, found["base"], BASE)]
        for one in found["grid"]:
            point = one["layer"], one["beta"]
            points.append((*point, one, CHOSEN if point == chosen else ""))
        rows = (
            row(point[name], layer=layer, beta=beta, quantity=name, note=note)
            for layer, beta, point, note in points
            for name in FIGURES
        )
        on = found["chosen_on"]
        return Frame(rows, {"on": f"{on['records']:,} tuning records of {on['benchmark']}"})

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        base = frame.pick(layer=None)
        level = base.one(quantity="chair_s").number
        points = [one for one in frame.pick(quantity="chair_s") if one["layer"] is not None]
        better = sum(one.estimate.number < level for one in points)
        told = [f"CHAIR_S is lower than the base's {level:.1f}% at {better} of {len(points)} points."]
        if chosen := frame.pick(note=CHOSEN):
            point = chosen.rows[0]
            here, f1 = (chosen.one(quantity=name).number for name in ("chair_s", "f1"))
            told.append(
                f"The chosen point is layer {point['layer']}, beta {point['beta']:g}, with CHAIR_S {here:.1f}% and F1 "
                f"{f1:.1f}% (base {base.one(quantity='f1').number:.1f}%)."
            )
        return [*told, "These are tuning records, without intervals."]

    def draw(self, frame: Frame, path: Path) -> None:
        base = frame.pick(layer=None)
        points = frame.pick(layer=[layer for layer in frame.distinct("layer") if layer is not None])
        with chart(path, columns=len(DRAWN), height=2.6) as panels:
            for panel, (figure, label) in zip(panels, DRAWN.items(), strict=True):
                series: dict[str, list[tuple[float, Estimate]]] = {}
                mark = None
                for one in points.pick(quantity=figure):
                    beta = float(str(one["beta"]))
                    series.setdefault(f"layer {one['layer']}", []).append((beta, one.estimate))
                    if one["note"] == CHOSEN:
                        mark = beta, one.estimate.value
                level = base.one(quantity=figure).value
                lines(panel, series, across="beta", up=label, level=("base", level), marked=mark)

    def entries(self, frame: Frame) -> Iterator[Filled]:
        """Fill in every point, named as the paper names its own; layers differ between models."""
        for one in frame.pick(quantity=tuple(DRAWN)):
            name = "Base" if one["layer"] is None else f"layer {one['layer']}, beta {one['beta']:g}"
            yield Filled(name, FIGURES[str(one["quantity"])], one.estimate)
