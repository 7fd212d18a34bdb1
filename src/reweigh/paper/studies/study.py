"""What a study is: from what a pass over images kept to a tidy table, a figure, and sentences made from its numbers.

    class Scale(Study):
        name, title, reproduces = "scale", "Scale across positions", "Fig. scale-nuisance, Tab. depth-dispersion"
        columns = (Column("quantity", "text", "what is measured"), *ESTIMATE)

        def unmet(self, material): ...       # why it cannot be computed here, or None
        def rows(self, material): ...        # the tidy table: one dict for each row, a value for each column
        def sentences(self, rows, material): ...  # two or three, made from the numbers
        def draw(self, rows, path): ...      # with reweigh.results.charts

A study that cannot be computed says why instead of printing a number. Knows no command and no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from reweigh.errors import CalibrationError, ReweighError
from reweigh.estimate import Estimate
from reweigh.paper.studies.material import Material

Kind = Literal["text", "integer", "number"]
Row = Mapping[str, Any]

LEAST_IMAGES = 30
"""Images below which no study prints a number."""


@dataclass(frozen=True)
class Column:
    """A column of a tidy table: its name, the type of its values (``None`` is always allowed), and what it says."""

    name: str
    kind: Kind
    what: str


ESTIMATE = (
    Column("value", "number", "the estimate"),
    Column("low", "number", "lower end of its 95% interval"),
    Column("high", "number", "upper end of its 95% interval"),
)
"""The columns of a number with its interval."""


class Study:
    """One analysis of the paper.

    Attributes:
        name: What commands and folders call it.
        title: What pages call it.
        reproduces: The paper's figures and tables that it reproduces.
        columns: The columns of its table.
        draws: Whether it has a figure.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reproduces: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]
    draws: ClassVar[bool] = True

    def unmet(self, material: Material) -> str | None:
        """Why the study cannot be computed from this material; ``None`` if it can."""
        return too_few_images(material)

    def inputs(self, material: Material) -> dict[str, str]:
        """Hashes of whatever else the results depend on; a study is computed again when one of them moves."""
        return {}

    def rows(self, material: Material) -> list[Row]:
        """The tidy table."""
        raise NotImplementedError

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        """Two or three sentences made from the numbers of the table; they say what the paper finds and this does not."""
        raise NotImplementedError

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        """Draw the figure as ``path`` with the endings .png and .svg."""
        raise NotImplementedError

    def extras(self, rows: Sequence[Row], material: Material, folder: Path) -> list[str]:
        """Write further files into the study's folder and name them."""
        return []


@dataclass(frozen=True)
class Outcome:
    """What a study found: its table and sentences, or why there are none."""

    study: type[Study]
    rows: tuple[Row, ...]
    sentences: tuple[str, ...]
    unmet: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome for a program."""
        return {
            "study": self.study.name,
            "title": self.study.title,
            "place": self.study.reproduces,
            "unmet": self.unmet,
            "columns": [
                {"name": column.name, "kind": column.kind, "what": column.what}
                for column in self.study.columns
            ],
            "rows": [dict(row) for row in self.rows],
            "sentences": list(self.sentences),
        }


def compute(study: type[Study], material: Material) -> Outcome:
    """Run a study, or return why it cannot be run."""
    made = study()
    try:
        reason = made.unmet(material)
        rows = [] if reason is not None else [_checked(study, row) for row in made.rows(material)]
    except CalibrationError as error:  # a readout has no usable table on these images: no study of it
        reason = error.message
    if reason is not None:
        return Outcome(study, (), (f"{made.title}: not computed, {reason}.",), reason)
    return Outcome(study, tuple(rows), tuple(made.sentences(rows, material)))


def estimate(metric: Estimate | float | None) -> dict[str, float | None]:
    """A number with its interval, as the columns of ``ESTIMATE``; an end that is not finite is ``None``."""
    ends = metric.parts if isinstance(metric, Estimate) else (metric, None, None)
    return dict(zip(("value", "low", "high"), map(_finite, ends), strict=True))


def as_estimate(row: Row) -> Estimate:
    """The number of a row with its interval, for charts."""
    return Estimate(row["value"], row["low"], row["high"])


def find(rows: Sequence[Row], **wanted: Any) -> Row:
    """The one row whose columns have these values."""
    found = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    if len(found) != 1:
        raise ReweighError(f"{len(found)} rows of the table have {wanted}; one was expected")
    return found[0]


def too_few_images(material: Material) -> str | None:
    """The precondition all studies share."""
    images = len(material.evaluation)
    return f"{images} images are fewer than {LEAST_IMAGES}" if images < LEAST_IMAGES else None


def _checked(study: type[Study], row: Row) -> dict[str, Any]:
    """The row as plain values in the order of the columns, each of the type its column has."""
    names = [column.name for column in study.columns]
    if set(row) != set(names):
        raise ReweighError(f"the study {study.name} gave a row of {sorted(row)}; its columns are {names}")
    return {column.name: _plain(column.kind, row[column.name]) for column in study.columns}


def _plain(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind == "text":
        return str(value)
    return int(value) if kind == "integer" else _finite(value)


def _finite(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if abs(number) != float("inf") and number == number else None
