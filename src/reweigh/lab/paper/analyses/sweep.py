"""Sweeps: several settings answered end to end, their CHAIR figures, and paired differences to the base answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.paper.material import BASE, FIGURES, Material
from reweigh.lab.paper.study import Dots, Filled, Study, row
from reweigh.lab.runs.results import Scored

DRAWN = {name: f"{FIGURES[name]}, %" for name in ("chair_s", "chair_i", "f1")}
"""The figures that charts show, with their labels."""
DEPLOYED = "the table in use"


@dataclass(frozen=True)
class Setting:
    """One setting of a sweep.

    Attributes:
        name: What the frame calls it.
        run: Its answers; None if it could not be run.
        counts: Numbers of the setting itself, such as how many tokens are registered.
        note: A remark.
    """

    name: str
    run: Scored | None
    counts: Mapping[str, float | Estimate] = field(default_factory=dict)
    note: str = ""


class Sweep(Study):
    """A study of several settings; a subclass says which."""

    keys = (
        ("setting", "the setting; base is decoding without the method"),
        ("quantity", "a count of the setting, or a figure of CHAIR"),
        ("against", "the setting that a difference is to, else empty"),
        ("note", "a remark about the setting"),
    )
    panels = tuple(
        Dots(label, {"quantity": figure, "against": None}, "setting", level={"setting": BASE})
        for figure, label in DRAWN.items()
    )
    references: ClassVar[tuple[str, ...]] = (BASE,)
    """The settings that the others are compared with."""

    def settings(self, material: Material) -> Iterator[Setting]:
        """Yield the settings, in the order of the frame."""
        raise NotImplementedError

    def compute(self, material: Material) -> Frame:
        settings = [Setting(BASE, material.base()), *self.settings(material)]
        runs = {one.name: one.run for one in settings}
        return Frame(
            row(value, setting=one.name, quantity=quantity, against=against, note=one.note)
            for one in settings
            for quantity, against, value in self._figures(one, runs, material)
        )

    def _figures(
        self, one: Setting, runs: Mapping[str, Scored | None], material: Material
    ) -> Iterator[tuple[str, str | None, Estimate | float | None]]:
        """Yield the counts and figures of a setting, and its differences to the references."""
        for name, count in one.counts.items():
            yield name, None, count
        for figure in FIGURES:
            yield figure, None, None if one.run is None else one.run.summary.metrics[figure]
        for reference in self.references:
            other = runs[reference]
            if one.run is not None and other is not None and one.name not in (BASE, reference):
                for figure, gap in material.difference(other, one.run).items():
                    yield figure, reference, gap

    def entries(self, frame: Frame) -> Iterator[Filled]:
        for one in frame.values():
            if one.estimate.value is not None:
                name = "Base" if one["setting"] == BASE else str(one["setting"])
                quantity = str(one["quantity"])
                yield Filled(name, FIGURES.get(quantity, quantity), one.estimate)


def change_of(frame: Frame, setting: str, against: str = BASE) -> Estimate:
    """Return how much a setting changes CHAIR_S, in points."""
    return frame.one(setting=setting, quantity="chair_s", against=against)


def settings_of(frame: Frame) -> list[str]:
    """Return the settings that were run, in their order, without the base."""
    run = frame.pick(quantity="chair_s", against=None)
    return [str(one["setting"]) for one in run if one.estimate.value is not None and one["setting"] != BASE]
