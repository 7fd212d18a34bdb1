"""The types that all benchmarks share: records, responses, items and the summary.

A scorer gives each response an :class:`Item` of additive counts. Every figure of a :class:`Summary` is a
function of summed counts, so items of shards that were scored separately merge into the summary of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from reweigh.errors import InputError
from reweigh.lab.bootstrap import UNDEFINED
from reweigh.lab.estimate import Estimate

Id: TypeAlias = "str | int"
Direction = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One question to a model: an image (path relative to the image folder), a prompt and a limit."""

    id: Id
    image: str
    prompt: str
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Response:
    """A model's answer to the record with the same id; the other fields are what its file repeats of that record."""

    id: Id
    text: str
    questions: tuple[str, ...] = ()
    image: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What a benchmark asks under an id; None for what response files need not repeat."""

    image: str
    text: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The result of one response.

    Args:
        id: The record's id.
        image: The unit that the bootstrap resamples; questions on one image share it.
        counts: Additive numerators and denominators; one that is left out is zero.
        details: What a report shows (mentions with spans, the parsed answer); JSON.
    """

    id: Id
    image: Id
    counts: Mapping[str, float]
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the item as plain JSON."""
        return {
            "id": self.id,
            "image": self.image,
            "counts": dict(self.counts),
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Item:
        """Read an item that :meth:`to_json` wrote."""
        try:
            return cls(id=row["id"], image=row["image"], counts=row["counts"], details=row["details"])
        except KeyError as error:
            raise InputError(
                f"an item row lacks {error}: it has {', '.join(sorted(row)) or 'nothing'}"
            ) from error


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """The name of a metric and how to read it.

    Args:
        name: Its key in a summary.
        direction: Which direction is better, if any.
        title: The name for tables; by default the key with spaces.
        unit: Unit of its numbers; empty for none.
        digits: Decimals to print.
        headline: Whether tables and tiles show it.
        undefined: Why it can be undefined.

    Examples:
        >>> MetricInfo("hallucination_rate", "lower").title
        'hallucination rate'
    """

    name: str
    direction: Direction | None = None
    _: KW_ONLY
    title: str = ""
    unit: str = "%"
    digits: int = 1
    headline: bool = False
    undefined: str = UNDEFINED

    def __post_init__(self) -> None:
        if self.direction not in (None, *get_args(Direction)):
            raise InputError(
                f"the metric {self.name!r} has the direction {self.direction!r}", hint="lower, higher or None"
            )
        if not self.title:
            object.__setattr__(self, "title", self.name.replace("_", " "))


def find_metric(metrics: Sequence[MetricInfo], name: str) -> MetricInfo:
    """Describe a metric by its name; a breakdown (``score_attribute``, ``relation_f1``) is read like its metric.

    An unknown name has no direction and no unit.
    """
    exact = [info for info in metrics if info.name == name]
    whole = [info for info in metrics if name.startswith(f"{info.name}_") or name.endswith(f"_{info.name}")]
    if exact:
        return exact[0]
    if not whole:
        return MetricInfo(name, unit="")
    info = max(whole, key=lambda one: len(one.name))
    return MetricInfo(name, info.direction, unit=info.unit, digits=info.digits, undefined=info.undefined)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a set of items.

    Args:
        benchmark: Name of the benchmark.
        metrics: Unrounded figures with intervals; shares are in percent.
        n: Number of items.
        images: Number of bootstrap units.
        scorer: What was used: variant, linguistic back end, versions, parse failures.
        official: The figures as the official program prints them, rounded or smoothed its own way.
    """

    benchmark: str
    metrics: Mapping[str, Estimate]
    n: int
    images: int
    scorer: Mapping[str, Any] = field(default_factory=dict)
    official: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Sequence[Item], **about: Any) -> Summary:
        """Make the summary of items, counting them and their images."""
        return cls(n=len(items), images=len({item.image for item in items}), **about)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain JSON."""
        metrics = {name: metric.to_json() for name, metric in self.metrics.items()}
        return {
            "benchmark": self.benchmark,
            "metrics": metrics,
            "n": self.n,
            "images": self.images,
            "scorer": dict(self.scorer),
            "official": dict(self.official),
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Summary:
        """Read what :meth:`to_json` gave."""
        metrics = {name: Estimate(**row) for name, row in page["metrics"].items()}
        return cls(**{**page, "metrics": metrics})


def json_type(value: object) -> str:
    """Name the type of a JSON value in words.

    >>> [json_type(value) for value in (None, True, 3, "a", [], {})]
    ['null', 'a boolean', 'a number', 'a string', 'a list', 'an object']
    """
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return "null" if value is None else names.get(type(value), "an object")
