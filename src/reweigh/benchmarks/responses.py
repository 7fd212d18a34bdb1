"""Responses: read from a file of any tool, and checked against the ids and the questions that a benchmark has.

One rule for keys: a row must have exactly one that can hold its id and one that can hold its text, or the caller says
which. Where a row names its question, that must be the benchmark's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from reweigh.benchmarks.types import Id, Response
from reweigh.errors import InputError
from reweigh.files.artifacts import parse_json

ID_KEYS = ("id", "image_id", "question_id")
TEXT_KEYS = ("response", "caption", "answer", "text")
QUESTION_KEYS = ("question", "prompt", "query", "text")
"""Keys under which a row may name its question; ``text`` only where it is not the answer."""


def read_responses(
    path: str | Path, *, id_key: str | None = None, text_key: str | None = None
) -> list[Response]:
    """Read responses from our JSONL or from a benchmark's official file.

    Accepts JSON lines, a JSON list of objects, or one JSON object of id to text. The keys are found among
    ``id, image_id, question_id`` and ``response, caption, answer, text`` unless given; a row that has several of
    either kind, or none, is refused. Skips blank lines.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"the response file {path} does not exist", hint="check the path")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error})") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error})") from error
    rows = _json_rows(text, path) if path.suffix == ".json" else _jsonl_rows(text, path)
    return [_response(row, where, id_key, text_key) for where, row in rows]


def _json_rows(text: str, path: Path) -> list[tuple[str, Any]]:
    if not text.strip():
        return []
    try:
        value = parse_json(text)
    except (ValueError, RecursionError) as error:
        try:
            return _jsonl_rows(text, path)
        except InputError:
            raise InputError(f"{path} is not valid JSON ({error})") from error
    if isinstance(value, dict) and isinstance(value.get("imgToEval"), dict):
        value = list(value["imgToEval"].values())  # the input of the first CHAIR scorer
    if isinstance(value, dict):
        if not any(key in value for key in ID_KEYS):
            return [(f"{path}, key {key!r}", {"id": key, "response": entry}) for key, entry in value.items()]
        value = [value]
    if not isinstance(value, list):
        raise InputError(f"{path} contains a {type(value).__name__}; expected a list of objects")
    return [(f"{path}, entry {index}", row) for index, row in enumerate(value)]


def _jsonl_rows(text: str, path: Path) -> list[tuple[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append((f"{path}, line {number}", parse_json(line)))
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}, is not JSON ({error})",
                hint="the line is truncated or altered; resume the run that wrote it, or remove the line",
            ) from error
    return rows


def _response(row: Any, where: str, id_key: str | None, text_key: str | None) -> Response:
    if not isinstance(row, dict):
        raise InputError(f"{where}, is a {type(row).__name__}; expected an object with an id and a response")
    named = {
        "id": _key(row, where, "id", id_key, ID_KEYS),
        "text": _key(row, where, "text", text_key, TEXT_KEYS),
    }
    identity, text = row[named["id"]], row[named["text"]]
    if isinstance(identity, bool) or not isinstance(identity, (str, int)):
        raise InputError(
            f"{where}: the id {identity!r} is a {type(identity).__name__}, not a string or an integer"
        )
    if not isinstance(text, str):
        raise InputError(f"{where}: the response of id {identity!r} is a {type(text).__name__}, not a string")
    asked = (row[key] for key in QUESTION_KEYS if key in row and key not in named.values())
    image, label = (
        row[key] if isinstance(row.get(key), str) and key not in named.values() else None
        for key in ("image", "label")
    )
    questions = tuple(question for question in asked if isinstance(question, str))
    return Response(identity, text, questions, image, label)


def _key(row: Mapping[str, Any], where: str, what: str, wanted: str | None, known: Sequence[str]) -> str:
    candidates = [key for key in ([wanted] if wanted is not None else known) if key in row]
    if len(candidates) == 1:
        return candidates[0]
    seen = f"its keys are {', '.join(map(repr, row)) or 'none'}"
    if not candidates:
        raise InputError(
            f"{where}, has no {what}: {seen}",
            hint=f"expected {wanted!r}"
            if wanted is not None
            else f"expected one of {', '.join(known)}; --{what}-key names another",
        )
    raise InputError(
        f"{where}, has several keys that may hold the {what}, {' and '.join(map(repr, candidates))}: {seen}",
        hint=f"say which with --{what}-key",
    )


class Asked(Protocol):
    """A benchmark that knows what its ids ask."""

    def question_of(self, identity: Id) -> str | None:
        """The question of an id; None if all records ask the same."""
        ...

    def image_of(self, identity: Id) -> str | None:
        """The image of an id; None where files do not name it."""
        ...

    def label_of(self, identity: Id) -> str | None:
        """The right answer of an id; None where files do not name it."""
        ...


def check_questions(responses: Sequence[Response], benchmark: Asked) -> None:
    """Refuse responses that were given to other questions than those of their ids, or that are the questions."""
    repeated = 0
    for response in responses:
        asked, image = benchmark.question_of(response.id), benchmark.image_of(response.id)
        if asked is not None and response.questions:
            _check_pair(
                response.id, asked, response.questions, lambda one, other: _plain(one) in _plain(other)
            )
        if image is not None and response.image is not None:
            _check_pair(response.id, image, (response.image,), lambda one, other: _base(one) == _base(other))
        label = benchmark.label_of(response.id)
        if label is not None and response.label is not None and _plain(response.label) != label:
            raise InputError(
                f"the response of id {response.id!r} has the label {response.label!r}, the benchmark {label!r}",
                hint="the file is of another order or version; give each answer the id of its question",
            )
        repeated += (
            asked is not None and isinstance(response.text, str) and _plain(response.text) == _plain(asked)
        )
    if 2 * repeated > len(responses):
        raise InputError(
            f"{repeated} of {len(responses)} responses are the questions themselves",
            hint="name the keys of id and text, e.g. --keys image_id,caption",
        )


def _check_pair(identity: Id, ours: str, theirs: Sequence[str], same: Callable[[str, str], bool]) -> None:
    if not any(same(ours, one) for one in theirs):
        raise InputError(
            f"the response of id {identity!r} answers {theirs[0][:200]!r}, but the benchmark asks {ours[:200]!r}",
            hint="the file is of another order or version; give each answer the id of its question",
        )


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _plain(text: str) -> str:
    """A question without what programs add to it: white space, case."""
    return " ".join(text.split()).casefold()


def check_responses(
    responses: Iterable[Response],
    *,
    known: Collection[Id],
    ids: Collection[Id] | None = None,
    repeats: bool = False,
) -> list[Response]:
    """Refuse responses that cannot be scored, naming the first problem.

    Args:
        responses: What was read.
        known: The ids that the benchmark has.
        ids: If given, exactly these must have been answered.
        repeats: Whether to accept several responses of one id.
    """
    checked: list[Response] = []
    seen: set[tuple[type, Id]] = set()
    by_text = {str(identity): identity for identity in known} if known else {}
    for index, response in enumerate(responses):
        _check_one(response, index, by_text)
        key = (type(response.id), response.id)
        if key in seen and not repeats:
            raise InputError(
                f"id {response.id!r} was answered twice (again at response {index})",
                hint="keep one response for each id",
            )
        seen.add(key)
        checked.append(response)
    if ids is not None:
        _check_complete({response.id for response in checked}, ids)
    return checked


def _check_one(response: Response, index: int, by_text: Mapping[str, Id]) -> None:
    if not isinstance(response.text, str):
        raise InputError(
            f"response {index} (id {response.id!r}) is a {type(response.text).__name__}, not a string"
        )
    # 1 and "1", or 1 and True, are not the same id: official scorers silently take one for the other.
    if by_text.get(str(response.id)) != response.id or isinstance(response.id, bool):
        twin = by_text.get(str(response.id))
        hint = f"the benchmark's id is {twin!r}, a {type(twin).__name__}" if twin is not None else None
        raise InputError(f"response {index} has the unknown id {response.id!r}", hint=hint)


def _check_complete(answered: set[Id], ids: Collection[Id]) -> None:
    wanted = set(ids)
    if missing := sorted(wanted - answered, key=str):
        listed = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{len(missing)} of {len(wanted)} ids have no response: {listed}",
            hint="finish the run, or score what there is (--allow-missing)",
        )
    if extra := sorted(answered - wanted, key=str):
        raise InputError(f"{len(extra)} responses answer ids that were not asked, the first is {extra[0]!r}")
