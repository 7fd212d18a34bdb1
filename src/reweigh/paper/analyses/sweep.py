"""What all sweeps share: settings answered end to end, their CHAIR figures, and paired differences to the base answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from reweigh.benchmarks.base import find_metric
from reweigh.benchmarks.chair.metrics import METRICS
from reweigh.estimate import Estimate
from reweigh.method.references import rule_named
from reweigh.paper.answers import BASE, FIGURES, Answers, difference
from reweigh.paper.material import Material
from reweigh.paper.study import Entries, Entry, Study, lacks_model, row
from reweigh.results.frame import Frame
from reweigh.runs.task import Scored
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

DRAWN = ("chair_s", "chair_i", "f1")
NAMES = {"chair_s": "CHAIR_S", "chair_i": "CHAIR_I", "recall": "Recall", "f1": "F1"}
"""What the paper's tables call the figures."""
DEPLOYED = "the table in use"


@dataclass(frozen=True)
class Setting:
    """One setting of a sweep.

    Attributes:
        name: What the frame calls it.
        run: Its answers; ``None`` where it could not be run.
        counts: Numbers of the setting itself, such as how many tokens are registered.
        note: A remark.
    """

    name: str
    run: Scored | None
    counts: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


class Sweep(Study):
    """A study of several settings; a subclass says which."""

    keys = (
        ("setting", "the setting; base is decoding without the method"),
        ("quantity", "a count of the setting, or a figure of CHAIR"),
        ("against", "the setting that a difference is to, else empty"),
        ("note", "a remark about the setting"),
    )
    references: ClassVar[tuple[str, ...]] = (BASE,)
    """The settings that the others are compared with."""

    def settings(self, material: Material, answers: Answers) -> Iterator[Setting]:
        """The settings, in the order of the frame."""
        raise NotImplementedError

    def unmet(self, material: Material) -> str | None:
        return lacks_model(material)

    def compute(self, material: Material) -> Frame:
        answers = Answers.of(material)
        settings = [Setting(BASE, answers.base()), *self.settings(material, answers)]
        runs = {one.name: one.run for one in settings}
        return Frame(
            row(value, setting=one.name, quantity=quantity, against=against, note=one.note)
            for one in settings
            for quantity, against, value in self._figures(one, runs, material)
        )

    def _figures(
        self, one: Setting, runs: Mapping[str, Scored | None], material: Material
    ) -> Iterator[tuple[str, str | None, Estimate | float | None]]:
        """Counts and figures of a setting, and its differences to the references."""
        for name, count in one.counts.items():
            yield name, None, count
        for figure in FIGURES:
            yield figure, None, None if one.run is None else one.run.summary.metrics[figure]
        for reference in self.references:
            other = runs[reference]
            if one.run is not None and other is not None and one.name not in (BASE, reference):
                for figure, gap in difference(other, one.run, **material.draws).items():
                    yield figure, reference, gap

    def draw(self, frame: Frame, path: Path) -> None:
        from reweigh.results.charts import chart, dots

        names = settings_of(frame)
        with chart(path, columns=3, height=0.34 * len(names) + 1.1, sharey=True) as panels:
            for panel, figure in zip(panels, DRAWN, strict=True):
                shown = {name: frame.one(setting=name, quantity=figure, against=None) for name in names}
                dots(panel, {"": shown}, label=title(figure))
                if (level := shown[BASE].value) is not None:
                    panel.axvline(level, color="#68727f", lw=0.9, ls="--")
                if panel is not panels[0]:
                    panel.tick_params(labelleft=False)

    def fill(self, frame: Frame) -> dict[str, Entries]:
        found: dict[Entry, Estimate] = {}
        for one in frame.values():
            if one.estimate.value is not None:
                name = "Base" if one["setting"] == BASE else str(one["setting"])
                quantity = str(one["quantity"])
                found[Entry(name, NAMES.get(quantity, quantity))] = one.estimate
        return {label: found for label in self.labels}


def change_of(frame: Frame, setting: str, against: str = BASE) -> Estimate:
    """How much a setting changes CHAIR_S, in points."""
    return frame.one(setting=setting, quantity="chair_s", against=against)


def settings_of(frame: Frame) -> list[str]:
    """The settings that were run, in their order."""
    run = frame.pick(quantity="chair_s", against=None)
    return [str(one["setting"]) for one in run if one.estimate.value is not None]


def register(part: Observations, deployed: ReferenceTable, rule: str | None = None) -> ReferenceTable:
    """The table of some observations, registered as the table in use was, or by another rule."""
    name = rule or str(deployed.made_with["rule"])
    about = {**deployed.made_with, "rule": name, "images": len(part.images), "corpus": part.corpus}
    return ReferenceTable.build(deployed.layer, part.register(deployed.layer, rule=rule_named(name)), about)


def title(figure: str) -> str:
    """What charts call a figure of CHAIR."""
    return f"{find_metric(METRICS, figure).title}, %"
