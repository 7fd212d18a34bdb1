"""Model scaling: base and ReWEIGH of several checkpoints in one table.

This model's runs are those of the other studies. Further models are finished study folders in ``checkpoints`` beside the
runs (``reweigh study detection OTHER-MODEL -b chair -o STUDY/checkpoints/NAME``): their runs are read, and nothing
is answered again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from reweigh.files.artifacts import sha256_file
from reweigh.lab.arms.ablate.arms import RANK
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.analyses.sweep import DRAWN
from reweigh.lab.paper.material import BASE, FIGURES, Material
from reweigh.lab.paper.study import Dots, Filled, Study, row
from reweigh.lab.runs.record import RESULTS
from reweigh.lab.runs.results import Scored, read_scored

FOLDER = "checkpoints"
GAP = "ReWEIGH minus base"
METHODS = {BASE: "base", RANK: "ReWEIGH"}


class Scaling(Study):
    """CHAIR of several checkpoints, base and ReWEIGH."""

    name = "scaling"
    title = "Model scaling"
    labels = ("tab:model-scaling", "tab:chair-full", "tab:chair-amber")
    keys = (
        ("model", "the checkpoint"),
        ("method", "base, ReWEIGH, or their difference"),
        ("quantity", "a figure of CHAIR"),
        ("images", "records behind it"),
    )
    panels = tuple(
        Dots(label, {"quantity": figure, "method": tuple(METHODS.values())}, "model", "method")
        for figure, label in DRAWN.items()
    )

    def inputs(self, material: Material) -> dict[str, str]:
        task = material.runs.task.name
        runs = [folder / task / name / RESULTS for folder in others(material) for name in METHODS]
        return {str(index): sha256_file(path) for index, path in enumerate(runs)}

    def compute(self, material: Material) -> Frame:
        name = str(material.runs.model.get("id", "this model"))
        rows = [*model_rows(name, {BASE: material.base(), RANK: material.rank()}, material)]
        for folder in others(material):
            found = {method: read_scored(folder / material.runs.task.name / method) for method in METHODS}
            name = str(found[BASE].results["config"]["model"].get("id", folder.name))
            if any(one["model"] == name for one in rows):  # two folders of one model keep different names
                name = f"{name} ({folder.name})"
            rows += model_rows(name, found, material)
        return Frame(rows)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        changes = frame.pick(method=GAP, quantity="chair_s")
        lower = sum(one.estimate.high is not None and one.estimate.high < 0 for one in changes)
        words = "; ".join(
            f"{one['model']} {one.estimate.text(signed=True, unit=' points')}" for one in changes
        )
        lines = [
            f"CHAIR_S, ReWEIGH minus base: {words}. The whole interval is below zero for {lower} of {len(changes)}."
        ]
        if len(changes) == 1:
            lines.append(
                "One checkpoint says nothing about scale; to add another, put a finished study of that model into "
                f"{FOLDER}/NAME of this folder."
            )
        return lines

    def entries(self, frame: Frame) -> Iterator[Filled]:
        """Fill in base and ReWEIGH of the studied model; the study's own page has the others."""
        names = {METHODS[BASE]: "Base", METHODS[RANK]: "ReWEIGH"}
        for one in frame.pick(model=frame.distinct("model")[0], method=tuple(names)):
            yield Filled(names[str(one["method"])], FIGURES[str(one["quantity"])], one.estimate)


def others(material: Material) -> list[Path]:
    """List the finished study folders of further models on the same benchmark."""
    folders, task = sorted(material.beside(FOLDER).glob("*")), material.runs.task.name
    return [one for one in folders if all((one / task / name / RESULTS).is_file() for name in METHODS)]


def model_rows(model: str, runs: Mapping[str, Scored], material: Material) -> Iterator[Row]:
    """Make the rows of one model."""
    found = {METHODS[name]: runs[name].summary.metrics for name in METHODS}
    found[GAP] = material.difference(runs[BASE], runs[RANK])
    images = len(runs[BASE].items)
    for method, values in found.items():
        for figure in FIGURES:
            yield row(values[figure], model=model, method=method, quantity=figure, images=images)
