"""What a study is: a frame computed from what one pass over the images kept, a figure, and sentences made from its numbers.

    class Scale(Study):
        name, title = "scale", "Scale across positions"
        labels = ("fig:scale-nuisance", "tab:depth-dispersion")      # what it fills in the paper
        keys = (("quantity", "what is measured"),)                   # the keys of its frame, and what they say

        def unmet(self, material): ...            # why it cannot be computed here, or None
        def compute(self, material): ...          # -> Frame
        def sentences(self, frame, material): ... # two or three, made from the numbers
        def draw(self, frame, path): ...          # with reweigh.results.charts
        def fill(self, frame): ...                # label -> entries of the paper's table

A study whose preconditions fail says why instead of printing a number, and no title states a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from reweigh.errors import CalibrationError, ReweighError
from reweigh.estimate import Estimate
from reweigh.paper.material import Material
from reweigh.results.frame import Frame, Key, Row

LEAST_IMAGES = 30
"""No study prints a number for fewer images."""
FIGURE, FRAGMENT = "figure", "fragment.html"
"""A study's drawing (as .png and .svg), and markup that it adds to its part of the page."""
NO_MODEL = "it needs the model to answer the records again"


class Entry(NamedTuple):
    """Where a number stands in a table of the paper: the name of its row, and its metric."""

    row: str
    metric: str


Entries = Mapping[Entry, Estimate]


class Study:
    """One analysis of the paper.

    Attributes:
        name: What commands and folders call it.
        title: What pages call it.
        labels: The paper's tables and figures that it fills.
        keys: The keys of its frame, and what each says.
        draws: Whether it has a figure.
        files: Further files that it writes.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    labels: ClassVar[tuple[str, ...]]
    keys: ClassVar[tuple[tuple[str, str], ...]]
    draws: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ()

    def unmet(self, material: Material) -> str | None:
        """Why the study cannot be computed from this material; ``None`` if it can."""
        return too_few_images(material)

    def inputs(self, material: Material) -> dict[str, str]:
        """Hashes of whatever else the results depend on; a study is computed again when one of them changes."""
        return {}

    def compute(self, material: Material) -> Frame:
        """The numbers."""
        raise NotImplementedError

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        """Two or three sentences made from the numbers, which also say where they differ from the paper's findings."""
        raise NotImplementedError

    def draw(self, frame: Frame, path: Path) -> None:
        """Draw the figure as ``path`` with the endings .png and .svg."""
        raise NotImplementedError

    def extras(self, frame: Frame, material: Material, folder: Path) -> list[str]:
        """Write further files into the study's folder and return their names."""
        return []

    def fill(self, frame: Frame) -> dict[str, Entries]:
        """The entries of the paper's tables that the numbers belong to."""
        return {label: {} for label in self.labels}

    @classmethod
    def place(cls) -> str:
        """Its tables and figures in words."""
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
        """The outcome for a program."""
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
    """Run a study, or return why it cannot be run."""
    made = study()
    frame = Frame()
    try:
        reason = made.unmet(material)
        if reason is None:
            frame = made.compute(material)
    except CalibrationError as error:  # a readout has no usable table on these images
        reason = error.message
    if reason is not None:
        return Outcome(study, Frame(), (f"Not computed: {reason}.",), reason)
    if frame and frame.keys != tuple(dict(study.keys)):
        raise ReweighError(
            f"the study {study.name} gave rows with the keys {list(frame.keys)}, not {list(dict(study.keys))}"
        )
    about = {"study": study.name, "title": study.title, "labels": list(study.labels)}
    return Outcome(study, Frame(frame.rows, about), tuple(made.sentences(frame, material)))


def row(number: Estimate | float | None, **keys: Key) -> Row:
    """A row of a frame."""
    return Row(keys, number if isinstance(number, Estimate) else Estimate(number))


def percent(share: Estimate) -> Estimate:
    """A share in percent."""
    return share.map(lambda part: 100.0 * part)


def too_few_images(material: Material) -> str | None:
    """The precondition that all studies share."""
    images = len(material.evaluation)
    return (
        f"{images} images are too few; at least {LEAST_IMAGES} are needed" if images < LEAST_IMAGES else None
    )


def lacks_model(material: Material) -> str | None:
    """The preconditions of studies that answer the records again."""
    return too_few_images(material) or (NO_MODEL if material.rerun is None else None)


def lacks_mentions(material: Material) -> str | None:
    """The preconditions of studies that compare hallucinated with grounded mentions."""
    if (reason := too_few_images(material)) is not None:
        return reason
    kinds = {mention.hallucinated for image in material.evaluation for mention in image.mentions}
    if True not in kinds:
        return "the base answers contain no hallucinated mention"
    return None if False in kinds else "the base answers contain no grounded mention"


def finding(claim: str, number: Estimate, *, above: bool = True, digits: int = 2, unit: str = "") -> str:
    """Whether a difference that the paper finds above (or below) zero is so here, with the interval that decides it.

    It holds if the whole interval lies on that side of zero.
    """
    shown = number.text(digits, signed=True, unit=unit)
    if number.value is None:
        return f"Whether {claim} cannot be decided here: the difference is undefined."
    if number.low is None or number.high is None:
        return f"Whether {claim} cannot be decided here: {shown} has no interval."
    if (number.low > 0) if above else (number.high < 0):
        return f"As in the paper, {claim}: {shown}."
    opposite = (number.high < 0) if above else (number.low > 0)
    why = "the opposite holds" if opposite else "the interval includes zero"
    return f"The paper finds that {claim}; this is not confirmed here: {shown}, {why}."
