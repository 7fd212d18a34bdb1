"""Model scaling: base and ReWEIGH of several checkpoints in one table.

This model's runs are those of the other studies. Further models are finished study folders in ``checkpoints`` beside the
runs (``reweigh study detection OTHER-MODEL -o STUDY/checkpoints/NAME``): their runs are read, nothing is answered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Item
from reweigh.benchmarks.bootstrap import paired_difference
from reweigh.benchmarks.chair.metrics import figures
from reweigh.estimate import Estimate
from reweigh.files.artifacts import sha256_file
from reweigh.paper.analyses.words import show
from reweigh.paper.studies.endtoend import BASE, FIGURES, NO_MODEL, RANK, EndToEnd
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import (
    ESTIMATE,
    Column,
    Row,
    Study,
    as_estimate,
    estimate,
    find,
    too_few_images,
)
from reweigh.paper.studies.sweep import title
from reweigh.runs.record import RESULTS
from reweigh.runs.results import read_scored

FOLDER = "checkpoints"
GAP = "ReWEIGH minus base"
METHODS = {BASE: "base", RANK: "ReWEIGH"}
DRAWN = ("chair_s", "chair_i", "f1")


class Scaling(Study):
    """CHAIR of several checkpoints, base and ReWEIGH."""

    name = "scaling"
    title = "Model scaling"
    reproduces = "Tab. model-scaling"
    columns = (
        Column("model", "text", "the checkpoint"),
        Column("method", "text", "base, ReWEIGH, or their difference"),
        Column("quantity", "text", "a figure of CHAIR"),
        *ESTIMATE,
        Column("images", "integer", "records behind it"),
    )

    def inputs(self, material: Material) -> dict[str, str]:
        runs = [folder / "runs" / name / RESULTS for folder in others(material) for name in METHODS]
        return {str(index): sha256_file(path) for index, path in enumerate(runs)}

    def unmet(self, material: Material) -> str | None:
        if (reason := too_few_images(material)) is not None:
            return reason
        return NO_MODEL if material.rerun is None else None

    def rows(self, material: Material) -> list[Row]:
        runs = EndToEnd.of(material)
        base, rank = runs.base(), runs.rank()
        name = str(runs.rerun.runs.model.get("id", "this model"))
        rows = model_rows(
            name, base.items, rank.items, {BASE: base.summary.metrics, RANK: rank.summary.metrics}, material
        )
        for folder in others(material):
            found = {method: read_scored(folder / "runs" / method) for method in METHODS}
            metrics = {method: run.metrics for method, run in found.items()}
            title_ = str(found[BASE].results["config"]["model"].get("id", folder.name))
            rows += model_rows(title_, found[BASE].items, found[RANK].items, metrics, material)
        return rows

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        models = list(dict.fromkeys(row["model"] for row in rows))
        changes = [find(rows, model=model, method=GAP, quantity="chair_s") for model in models]
        lower = sum(row["high"] is not None and row["high"] < 0 for row in changes)
        words = "; ".join(
            f"{model} {show(row, signed=True, unit=' points')}"
            for model, row in zip(models, changes, strict=True)
        )
        lines = [f"CHAIR_S, ReWEIGH minus base: {words}. It falls for {lower} of {len(models)} checkpoints."]
        if len(models) == 1:
            lines.append(
                f"One checkpoint says nothing of scale; a finished study of another model in {FOLDER}/NAME is one more."
            )
        return lines

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, dots

        models = list(dict.fromkeys(row["model"] for row in rows))
        with chart(path, columns=3, height=0.6 * len(models) + 1.3) as panels:
            for panel, figure in zip(panels, DRAWN, strict=True):
                series = {
                    method: {
                        model: as_estimate(find(rows, model=model, method=method, quantity=figure))
                        for model in models
                    }
                    for method in METHODS.values()
                }
                dots(panel, series, label=title(figure))
                if panel is not panels[0]:
                    panel.tick_params(labelleft=False)


def others(material: Material) -> list[Path]:
    """Finished study folders of further models beside the runs."""
    if material.rerun is None:
        return []
    folders = sorted((material.rerun.folder.parent / FOLDER).glob("*"))
    return [one for one in folders if all((one / "runs" / name / RESULTS).is_file() for name in METHODS)]


def model_rows(
    model: str, base: Sequence[Item], rank: Sequence[Item], metrics: dict[str, Any], material: Material
) -> list[Row]:
    """The rows of one model."""

    def row(method: str, quantity: str, metric: Estimate) -> Row:
        about = {"model": model, "method": method, "quantity": quantity}
        return {**about, **estimate(metric), "images": len(base)}

    rows = [
        row(title_, figure, metrics[method][figure])
        for method, title_ in METHODS.items()
        for figure in FIGURES
    ]
    gaps = paired_difference(base, rank, figures, resamples=material.resamples, seed=material.seed)
    return rows + [row(GAP, figure, gaps[figure]) for figure in FIGURES]
