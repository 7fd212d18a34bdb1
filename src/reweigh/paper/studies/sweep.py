"""What all sweeps share: settings answered end to end, their CHAIR figures, and paired differences to the base answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from reweigh.benchmarks.base import find_metric
from reweigh.benchmarks.chair.metrics import METRICS
from reweigh.paper.studies.endtoend import BASE, FIGURES, NO_MODEL, EndToEnd, difference
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
from reweigh.runs.task import Scored

AGAINST = " minus base"
DRAWN = ("chair_s", "chair_i", "f1")


@dataclass(frozen=True)
class Setting:
    """One setting of a sweep.

    Attributes:
        name: What the table calls it.
        run: Its answers; ``None`` where it could not be run.
        counts: Numbers of the setting itself, such as how many tokens are registered.
        note: A remark for the table.
    """

    name: str
    run: Scored | None
    counts: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


class Sweep(Study):
    """A study of several settings; a subclass says which."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("setting", "text", "the setting; base is decoding without the method"),
        Column(
            "quantity", "text", "a count of the setting, a figure of CHAIR, or its difference to the base"
        ),
        *ESTIMATE,
        Column("note", "text", "what is to be said of the setting"),
    )

    def settings(self, material: Material, runs: EndToEnd) -> Iterator[Setting]:
        """The settings, in the order of the table."""
        raise NotImplementedError

    def unmet(self, material: Material) -> str | None:
        if (reason := too_few_images(material)) is not None:
            return reason
        return NO_MODEL if material.rerun is None else None

    def rows(self, material: Material) -> list[Row]:
        runs = EndToEnd.of(material)
        base = runs.base()
        rows = setting_rows(Setting(BASE, base), base, material)
        for setting in self.settings(material, runs):
            rows += setting_rows(setting, base, material)
        return rows

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, dots

        names = settings_of(rows)
        with chart(path, columns=3, height=0.34 * len(names) + 1.1, sharey=True) as panels:
            for panel, figure in zip(panels, DRAWN, strict=True):
                shown = {name: as_estimate(find(rows, setting=name, quantity=figure)) for name in names}
                dots(panel, {"": shown}, label=title(figure))
                panel.axvline(shown[BASE].value, color="#68727f", lw=0.9, ls="--")
                if panel is not panels[0]:
                    panel.tick_params(labelleft=False)


def setting_rows(setting: Setting, base: Scored, material: Material) -> list[Row]:
    """The rows of one setting."""

    def row(quantity: str, value: Any) -> Row:
        return {"setting": setting.name, "quantity": quantity, **estimate(value), "note": setting.note}

    rows = [row(name, value) for name, value in setting.counts.items()]
    if setting.run is None:
        return [*rows, *(row(figure, None) for figure in FIGURES)]
    rows += [row(figure, setting.run.summary.metrics[figure]) for figure in FIGURES]
    if setting.name != BASE:
        gaps = difference(base, setting.run, resamples=material.resamples, seed=material.seed)
        rows += [row(f"{figure}{AGAINST}", metric) for figure, metric in gaps.items()]
    return rows


def settings_of(rows: Sequence[Row]) -> list[str]:
    """The settings that were run, in their order."""
    return list(
        dict.fromkeys(
            row["setting"] for row in rows if row["quantity"] == "chair_s" and row["value"] is not None
        )
    )


def title(figure: str) -> str:
    """What charts call a figure of CHAIR."""
    info = find_metric(METRICS, figure)
    return f"{info.title}, %"
