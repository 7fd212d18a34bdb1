"""The one shape of all benchmarks: records in, responses back, items and a summary out.

A scorer gives each response an :class:`Item` of additive counts. Every figure of a :class:`Summary` is a
function of summed counts, so the items of shards scored apart merge to the summary of the whole.
Knows no benchmark, no model and no linguistics.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from reweigh.errors import InputError
from reweigh.registry import Registry

Id: TypeAlias = "str | int"

ID_KEYS = ("id", "image_id", "question_id")
TEXT_KEYS = ("response", "caption", "answer", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One thing to ask a model: an image (path relative to the image folder), a prompt and a limit."""

    id: Id
    image: str
    prompt: str
    max_new_tokens: int
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """What a model said to the record of the same id."""

    id: Id
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The result of one response.

    Args:
        id: The record's id.
        image: The unit that the bootstrap resamples; questions on one image share it.
        counts: Additive numerators and denominators; one that is left out is zero.
        details: What a person or a report wants to see (mentions with spans, the parsed answer); JSON.
    """

    id: Id
    image: Id
    counts: Mapping[str, float]
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Give the item as plain JSON."""
        return {
            "id": self.id,
            "image": self.image,
            "counts": dict(self.counts),
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Item:
        """Read an item that :meth:`to_json` gave."""
        try:
            return cls(id=row["id"], image=row["image"], counts=row["counts"], details=row["details"])
        except KeyError as error:
            raise InputError(
                f"an item row lacks {error}: it has {', '.join(sorted(row)) or 'nothing'}"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure with its 95% image-bootstrap interval, or no figure and the reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the figure as plain JSON; the reason only where there is one."""
        row: dict[str, Any] = {"value": self.value, "low": self.low, "high": self.high}
        return row | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a set of items.

    Args:
        benchmark: Name of the benchmark.
        metrics: Unrounded figures with intervals; shares are in percent.
        n: Number of items.
        images: Number of bootstrap units.
        scorer: What was used: variant, linguistic back end, versions, parse failures.
        official: The figures as the official program prints them, rounded its way, where they differ in kind.
    """

    benchmark: str
    metrics: Mapping[str, Metric]
    n: int
    images: int
    scorer: Mapping[str, Any] = field(default_factory=dict)
    official: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        items: Sequence[Item],
        *,
        benchmark: str,
        metrics: Mapping[str, Metric],
        scorer: Mapping[str, Any] | None = None,
        official: Mapping[str, float | None] | None = None,
    ) -> Summary:
        """The summary of items, which are counted here."""
        return cls(
            benchmark=benchmark,
            metrics=metrics,
            n=len(items),
            images=len({item.image for item in items}),
            scorer=scorer or {},
            official=official or {},
        )

    def to_json(self) -> dict[str, Any]:
        """Give the summary as plain JSON."""
        return {
            "benchmark": self.benchmark,
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
            "n": self.n,
            "images": self.images,
            "scorer": dict(self.scorer),
            "official": dict(self.official),
        }


class Benchmark(Protocol):
    """A benchmark over the user's copy of its data.

    Made as ``BENCHMARKS[name](data_dir, **options)``; ``data_dir`` holds the benchmark's own files and is
    read only when asked for records or scores. Options are its own (scorer variant, parser, judge).
    """

    name: str

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List what to ask, in a fixed order; ``seed`` matters only where the benchmark samples."""
        ...

    def score(
        self, responses: Sequence[Response], *, ids: Collection[Id] | None = None
    ) -> tuple[list[Item], Summary]:
        """Score responses; with ``ids``, exactly these records must have been answered."""
        ...

    def summarise(self, items: Sequence[Item]) -> Summary:
        """Recompute the summary from items, for example those of all shards."""
        ...


BENCHMARKS: Registry[type[Benchmark]] = Registry(
    "benchmark",
    {
        "chair": "reweigh.benchmarks.chair.benchmark:CHAIR",
        "amber-generative": "reweigh.benchmarks.amber.generative:AMBERGenerative",
        "amber-discriminative": "reweigh.benchmarks.amber.discriminative:AMBERDiscriminative",
        "mmhal": "reweigh.benchmarks.mmhal:MMHal",
        "mmvet": "reweigh.benchmarks.mmvet:MMVet",
        "pope": "reweigh.benchmarks.pope:POPE",
        "world": "reweigh.benchmarks.world:World",
    },
    group="reweigh.benchmarks",
)


def read_responses(
    path: str | Path, *, id_key: str | None = None, text_key: str | None = None
) -> list[Response]:
    """Read responses from our JSONL or from a benchmark's official file.

    Accepts JSON lines, a JSON list of objects, or one JSON object of id to text. The keys are found among
    ``id, image_id, question_id`` and ``response, caption, answer, text`` unless given. Skips blank lines.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no response file {path}", hint="check the path")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error})") from error
    rows = _json_rows(text, path) if path.suffix == ".json" else _jsonl_rows(text, path)
    return [_response(row, where, id_key, text_key) for where, row in rows]


def _json_rows(text: str, path: Path) -> list[tuple[str, Any]]:
    if not text.strip():
        return []
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        try:
            return _jsonl_rows(text, path)
        except InputError:
            raise InputError(f"{path} is not valid JSON ({error})") from error
    if isinstance(value, dict) and isinstance(value.get("imgToEval"), dict):
        value = list(value["imgToEval"].values())  # the input of the first CHAIR scorer
    if isinstance(value, dict):
        if not any(key in value for key in ID_KEYS):
            return [(f"{path}, key {key!r}", {"id": key, "response": said}) for key, said in value.items()]
        value = [value]
    if not isinstance(value, list):
        raise InputError(f"{path} holds a {type(value).__name__}; expected a list of objects")
    return [(f"{path}, entry {index}", row) for index, row in enumerate(value)]


def _jsonl_rows(text: str, path: Path) -> list[tuple[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append((f"{path}, line {number}", json.loads(line)))
        except json.JSONDecodeError as error:
            raise InputError(
                f"{path}, line {number}, is not JSON ({error})",
                hint="the line was cut or altered; resume the run that wrote it, or remove the line",
            ) from error
    return rows


def _response(row: Any, where: str, id_key: str | None, text_key: str | None) -> Response:
    if not isinstance(row, dict):
        raise InputError(f"{where}, is a {type(row).__name__}; expected an object with an id and a response")
    identity = row[_key(row, where, "id", id_key, ID_KEYS)]
    text = row[_key(row, where, "response", text_key, TEXT_KEYS)]
    if isinstance(identity, bool) or not isinstance(identity, (str, int)):
        raise InputError(
            f"{where}: the id {identity!r} is a {type(identity).__name__}, not a string or an integer"
        )
    if not isinstance(text, str):
        raise InputError(f"{where}: the response of id {identity!r} is a {type(text).__name__}, not a string")
    return Response(identity, text)


def _key(row: Mapping[str, Any], where: str, what: str, wanted: str | None, known: Sequence[str]) -> str:
    for key in [wanted] if wanted is not None else known:
        if key in row:
            return key
    raise InputError(
        f"{where}, has no {what}: its keys are {', '.join(map(repr, row)) or 'none'}",
        hint=f"expected {wanted!r}" if wanted is not None else f"expected one of {', '.join(known)}",
    )


def check_responses(
    responses: Iterable[Response],
    *,
    known: Collection[Id],
    ids: Collection[Id] | None = None,
    repeats: bool = False,
) -> list[Response]:
    """Refuse responses that cannot be scored as they are, naming the first culprit.

    Args:
        responses: What was read.
        known: The ids that the benchmark has.
        ids: If given, exactly these must have been answered.
        repeats: Whether several responses of one id are meant.
    """
    checked: list[Response] = []
    seen: set[tuple[type, Id]] = set()
    by_text = {str(identity): identity for identity in known} if known else {}
    for position, response in enumerate(responses):
        _check_one(response, position, known, by_text)
        key = (type(response.id), response.id)
        if key in seen and not repeats:
            raise InputError(
                f"id {response.id!r} was answered twice (again at response {position})",
                hint="keep one response for each id",
            )
        seen.add(key)
        checked.append(response)
    if ids is not None:
        _check_complete({response.id for response in checked}, ids)
    return checked


def _check_one(response: Response, position: int, known: Collection[Id], by_text: Mapping[str, Id]) -> None:
    if not isinstance(response.text, str):
        raise InputError(
            f"response {position} (id {response.id!r}) is a {type(response.text).__name__}, not a string"
        )
    # 1 and "1", or 1 and True, are not the same id: official scorers silently take one for the other.
    if by_text.get(str(response.id)) != response.id or isinstance(response.id, bool):
        twin = by_text.get(str(response.id))
        hint = f"the benchmark's id is {twin!r}, a {type(twin).__name__}" if twin is not None else None
        raise InputError(f"response {position} has the unknown id {response.id!r}", hint=hint)


def _check_complete(answered: set[Id], ids: Collection[Id]) -> None:
    wanted = set(ids)
    if missing := sorted(wanted - answered, key=str):
        shown = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{len(missing)} of {len(wanted)} ids have no response: {shown}",
            hint="finish the run, or score what there is (--partial)",
        )
    if extra := sorted(answered - wanted, key=str):
        raise InputError(f"{len(extra)} responses answer ids that were not asked, the first is {extra[0]!r}")
