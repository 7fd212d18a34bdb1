"""Layer x beta: the grid that the operating point was chosen from, with the chosen point marked.

Nothing is run: the grid is that of a finished ``reweigh tune MODEL -o STUDY/tuning``, or the one that ships with the
embedded model. Its records are those of the tuning split, not the evaluation's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.experiments.tune.search import FIGURES
from reweigh.files.artifacts import read_json, sha256_json
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import Column, Row, Study
from reweigh.paper.studies.sweep import title
from reweigh.tables.point import POINT
from reweigh.world.shipped import operating_point

FOLDER = "tuning"
DRAWN = ("chair_s", "chair_i", "f1")
CHOSEN = "chosen"


class Grid(Study):
    """CHAIR over layer and beta."""

    name = "grid"
    title = "Layer and beta"
    reproduces = "Fig. ablation-layer-beta, Tab. layer-beta-grid"
    columns = (
        Column("layer", "integer", "0-based block; empty for the base"),
        Column("beta", "number", "maximum penalty; 0 for the base"),
        *(Column(name, "number", f"{title(name)} of the tuning records") for name in FIGURES),
        Column("note", "text", "whether it is the chosen point"),
    )

    def inputs(self, material: Material) -> dict[str, str]:
        return {"grid": sha256_json(found)} if (found := read_grid(material)) else {}

    def unmet(self, material: Material) -> str | None:
        if read_grid(material) is None:
            return (
                f"no search of an operating point is there; run `reweigh tune MODEL -o STUDY/{FOLDER}` first"
            )
        return None

    def rows(self, material: Material) -> list[Row]:
        found = read_grid(material) or {}
        rows: list[Row] = [{"layer": None, "beta": 0.0, **_figures(found["base"]), "note": "base"}]
        for point in found["grid"]:
            chosen = point["layer"] == found["layer"] and point["beta"] == found["beta"]
            about = {"layer": point["layer"], "beta": point["beta"]}
            rows.append({**about, **_figures(point), "note": CHOSEN if chosen else ""})
        return rows

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        base, points = rows[0], rows[1:]
        better = sum(row["chair_s"] < base["chair_s"] for row in points)
        lines = [
            f"{better} of {len(points)} points have a lower CHAIR_S than the base ({base['chair_s']:.1f}%)."
        ]
        for row in points:
            if row["note"] == CHOSEN:
                lines.append(
                    f"Chosen: layer {row['layer']}, beta {row['beta']:g}, with CHAIR_S {row['chair_s']:.1f}% and F1 "
                    f"{row['f1']:.1f}% (base {base['f1']:.1f}%). These are tuning records and carry no intervals."
                )
        return lines

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, lines

        layers = dict.fromkeys(row["layer"] for row in rows[1:])
        chosen = next((row for row in rows if row["note"] == CHOSEN), None)
        with chart(path, columns=3, height=2.6) as panels:
            for panel, figure in zip(panels, DRAWN, strict=True):
                series = {
                    f"layer {layer}": [
                        (row["beta"], row[figure])
                        for row in rows
                        if row["layer"] == layer and row[figure] is not None
                    ]
                    for layer in layers
                }
                mark = None if chosen is None else (chosen["beta"], chosen[figure])
                lines(
                    panel,
                    series,
                    across="beta",
                    up=title(figure),
                    level=("base", rows[0][figure]),
                    marked=mark,
                )


def read_grid(material: Material) -> dict[str, Any] | None:
    """The finished search beside the runs, else the shipped one if the table is the embedded model's."""
    if material.rerun is not None:
        path = material.rerun.folder.parent / FOLDER / POINT
        if path.is_file():
            found: dict[str, Any] = read_json(path)
            return found
    shipped = operating_point()
    own = shipped["chosen_on"]["table_sha256"].get(str(material.table.layer))
    return shipped if own == material.table.fingerprint else None


def _figures(point: Mapping[str, Any]) -> dict[str, Any]:
    return {name: point[name] for name in FIGURES}
