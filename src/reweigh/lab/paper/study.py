"""What an analysis of the paper declares: its numbers, the sentences made from them, its figure, the tables it fills.

    class Confidence(Study):
        name, title = "confidence", "Confidence and evidence"
        labels = ("tab:confidence-blindness",)                  # tables and figures of the paper
        keys = (("quantity", "what is measured"),)              # keys of the frame, and what they mean
        needs = (enough_images, both_kinds)                     # preconditions
        panels = (Dots("deficit, b0", {"quantity": DEFICITS}),) # rows of the frame, as dots with intervals

        def compute(self, material): ...                        # the formula -> Frame
        def sentences(self, frame, material): ...               # two or three, made from the numbers
        def entries(self, frame): ...                           # which number goes where in those tables

A study whose preconditions fail says why instead of printing a number, and no title states a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reweigh.errors import CalibrationError, ReweighError
from reweigh.lab.enough import too_few
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Key, Row
from reweigh.lab.paper.material import Material
from reweigh.lab.views.charts import MUTED, chart, dots

LEAST_IMAGES = 30
"""With fewer images, no study prints a number."""
FIGURE, FRAGMENT = "figure", "fragment.html"
"""A study's drawing (.png and .svg), and markup that it adds to its part of the page."""
Need = Callable[[Material], str | None]
"""A precondition: returns why a study cannot be computed, or None."""


def least_images(images: Sized, kind: str = "images") -> str | None:
    """Say that there are too few images."""
    if len(images) < LEAST_IMAGES:
        return f"{len(images)} {kind} are too few; at least {LEAST_IMAGES} are needed"
    return None


def enough_images(material: Material) -> str | None:
    """Require enough evaluation images."""
    return least_images(material.evaluation)


def both_kinds(material: Material) -> str | None:
    """Require hallucinated and grounded mentions in the base answers."""
    for kind, count in mentions_of(material).items():
        if not count:
            return f"the base answers contain no {kind.removesuffix('s')}"
    return None


def mentions_of(material: Material) -> dict[str, int]:
    """Count the mentions of both kinds in the base answers."""
    kinds = [mention.hallucinated for image in material.evaluation for mention in image.mentions]
    return {"hallucinated mentions": sum(kinds), "grounded mentions": len(kinds) - sum(kinds)}


def too_few_for(material: Material, sides: Mapping[str, int] | None = None) -> str | None:
    """Say why nothing can be claimed from the evaluation images and the events on each side of a claim."""
    return too_few(len(material.evaluation), sides, kind="images")


def registered(*arms: str) -> Need:
    """Require registered tokens in the table in use, and in those of some arms."""

    def need(material: Material) -> str | None:
        if not len(material.table):
            return "no token is registered"
        empty = [arm for arm in arms if not len(material.arm(arm).table)]
        return f"the {empty[0]} arm registers no token" if empty else None

    return need


class Entry(NamedTuple):
    """A place in a table of the paper: the name of the row, and the metric."""

    row: str
    metric: str


Entries = Mapping[Entry, Estimate]


class Filled(NamedTuple):
    """A number for the paper's tables: for one of them, or for all that the study fills."""

    row: str
    metric: str
    number: Estimate
    label: str | None = None


@dataclass(frozen=True)
class Dots:
    """A panel of a study's figure: estimates as dots with their intervals.

    Attributes:
        label: What the numbers are, with their unit.
        rows: Which rows of the frame, by their keys; a tuple stands for any of its values.
        name: The name of a row's dot: a key, or a function of the row.
        series: The key of the series, if there are several.
        zero: Whether to draw the line of no difference.
        level: Where to draw a dashed line: a number, or the keys of the row that has it.
    """

    label: str
    rows: Mapping[str, Key | Collection[Key]]
    name: str | Callable[[Row], str] = "quantity"
    series: str | None = None
    zero: bool = False
    level: float | Mapping[str, Key] | None = None

    def read(self, frame: Frame) -> dict[str, dict[str, Estimate]]:
        """Return the estimates by series and name."""
        found: dict[str, dict[str, Estimate]] = {}
        for one in frame.pick(**self.rows):
            series = "" if self.series is None else str(one[self.series])
            name = str(one[self.name]) if isinstance(self.name, str) else self.name(one)
            found.setdefault(series, {})[name] = one.estimate
        return found

    def draw(self, panel: Any, frame: Frame) -> None:
        """Draw the rows."""
        dots(panel, self.read(frame), zero=self.zero, label=self.label)
        level = self.level
        if isinstance(level, Mapping):
            level = frame.pick(**self.rows).one(**level).value
        if level is not None:
            panel.axvline(level, color=MUTED, lw=0.9, ls="--")


class Study:
    """One analysis of the paper.

    Attributes:
        name: What commands and folders call it.
        title: What pages call it.
        labels: The paper's tables and figures that it fills.
        keys: The keys of its frame, and what each means.
        needs: Its preconditions.
        panels: Its figure; a study that draws otherwise overrides ``draw``.
        stacked: Whether the panels stand below each other.
        files: Further files that it writes.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    labels: ClassVar[tuple[str, ...]]
    keys: ClassVar[tuple[tuple[str, str], ...]]
    needs: ClassVar[tuple[Need, ...]] = (enough_images,)
    panels: ClassVar[tuple[Dots, ...]] = ()
    stacked: ClassVar[bool] = False
    files: ClassVar[tuple[str, ...]] = ()

    def inputs(self, material: Material) -> dict[str, str]:
        """Hash whatever else the results depend on; a study is computed again when one of these changes."""
        return {}

    def compute(self, material: Material) -> Frame:
        """Compute the numbers."""
        raise NotImplementedError

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        """Make two or three sentences from the numbers, which also say where they differ from the paper's findings."""
        raise NotImplementedError

    def draw(self, frame: Frame, path: Path) -> None:
        """Draw the figure as ``path`` with the endings .png and .svg; nothing for a study without panels."""
        shown = [panel for panel in self.panels if frame.pick(**panel.rows)]
        if not shown:
            return
        names = [[name for series in panel.read(frame).values() for name in series] for panel in shown]
        heights = [1.1 + 0.22 * len(one) + 0.12 * len(set(one)) for one in names]
        sides: dict[str, Any] = {"rows" if self.stacked else "columns": len(shown)}
        with chart(path, height=sum(heights) if self.stacked else max(2.2, *heights), **sides) as panels:
            for panel, one, own in zip(np.atleast_1d(panels), shown, names, strict=True):
                one.draw(panel, frame)
                if one is not shown[0] and own == names[0] and not self.stacked:
                    panel.tick_params(labelleft=False)

    def extras(self, frame: Frame, material: Material, folder: Path) -> None:
        """Write further files into the study's folder: those named in ``files``, or the figure."""

    def entries(self, frame: Frame) -> Iterator[Filled]:
        """Yield the numbers that the paper's tables have."""
        yield from ()

    def fill(self, frame: Frame) -> dict[str, dict[Entry, Estimate]]:
        """Return the entries of each of the paper's tables."""
        found: dict[str, dict[Entry, Estimate]] = {label: {} for label in self.labels}
        for one in self.entries(frame):
            for label in self.labels if one.label is None else (one.label,):
                found[label][Entry(one.row, one.metric)] = one.number
        return found

    @classmethod
    def place(cls) -> str:
        """Name its tables and figures."""
        kinds = {"tab": "Tab.", "fig": "Fig.", "text": "text:"}
        parts = (label.partition(":") for label in cls.labels)
        return ", ".join(f"{kinds[kind]} {name}" for kind, _, name in parts)


@dataclass(frozen=True)
class Outcome:
    """What a study found: its frame and sentences, or why there are none."""

    study: type[Study]
    frame: Frame
    sentences: tuple[str, ...]
    unmet: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain JSON."""
        return {
            "study": self.study.name,
            "title": self.study.title,
            "labels": list(self.study.labels),
            "unmet": self.unmet,
            "says": dict(self.study.keys),
            **self.frame.to_json(),
            "sentences": list(self.sentences),
        }


def compute(study: type[Study], material: Material) -> Outcome:
    """Run a study, or say why it cannot be run."""
    made, frame = study(), Frame()
    try:
        reason = next((why for need in study.needs if (why := need(material)) is not None), None)
        if reason is None:
            frame = made.compute(material)
    except CalibrationError as error:  # a readout has no usable table on these images
        reason = error.message
    if reason is not None:
        return Outcome(study, Frame(), (f"Not computed: {reason}.",), reason)
    keys = tuple(dict(study.keys))
    if frame and frame.keys != keys:
        raise ReweighError(f"the study {study.name} gave rows with the keys {frame.keys}, not {keys}")
    about = {**frame.about, "study": study.name, "title": study.title, "labels": list(study.labels)}
    return Outcome(study, Frame(frame.rows, about), tuple(made.sentences(frame, material)))


def row(number: Estimate | float | None, **keys: Key) -> Row:
    """Make a row of a frame."""
    return Row(keys, number if isinstance(number, Estimate) else Estimate(number))


def percent(share: Estimate) -> Estimate:
    """Return a share in percent."""
    return share.map(lambda part: 100.0 * part)


def finding(
    claim: str,
    number: Estimate,
    *,
    few: str | None = None,
    above: bool = True,
    digits: int = 2,
    unit: str = "",
) -> str:
    """Say whether a difference that the paper finds above (or below) zero is so here, with the interval that decides.

    It holds if the whole interval lies on that side of zero; ``few`` says why nothing can be claimed.
    """
    shown = number.text(digits, signed=True, unit=unit)
    if number.value is None:
        return f"Whether {claim} cannot be decided here: the difference is undefined."
    if (few := few or number.reason) is not None:
        return f"Whether {claim} cannot be decided here: {few} ({shown})."
    if number.low is None or number.high is None:
        return f"Whether {claim} cannot be decided here: {shown} has no interval."
    if (number.low > 0) if above else (number.high < 0):
        return f"As in the paper, {claim}: {shown}."
    opposite = (number.high < 0) if above else (number.low > 0)
    why = "the opposite holds" if opposite else "the interval includes zero"
    return f"The paper finds that {claim}; this is not confirmed here: {shown}, {why}."
