"""Read response files of any tool, and check them against the ids and questions of a benchmark.

A row must have exactly one key that can hold its id and one that can hold its text, unless the caller names them. If
a row repeats its question, that must be the benchmark's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import parse_json
from reweigh.lab.tasks.types import Id, Question, Response, json_type

ID_KEYS = ("id", "image_id", "question_id")
TEXT_KEYS = ("response", "caption", "answer", "text")
QUESTION_KEYS = ("question", "prompt", "query", "text")
"""Keys under which a row may repeat its question; ``text`` only if it is not the answer."""


def read_rows(
    path: Path, unwrap: Callable[[Any], Any] = lambda row: [row], *, hint: str | None = None
) -> list[tuple[str, Any]]:
    """Read JSON lines, or a JSON list from a .json file; each row comes with its place for error messages.

    ``unwrap`` turns a .json file that is one object into a list; blank lines are skipped.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error})", hint=hint) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error})", hint=hint) from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if path.suffix == ".json" and lines:
        try:
            rows = parse_json(text)
        except (ValueError, RecursionError) as error:
            if not lines[0][1].lstrip().startswith("{"):
                raise InputError(f"{path} is not valid JSON ({error})", hint=hint) from error
        else:
            rows = unwrap(rows) if isinstance(rows, dict) else rows
            if not isinstance(rows, list):
                raise InputError(f"{path} contains {json_type(rows)}; expected a list of objects", hint=hint)
            return [(f"{path}, entry {index}", row) for index, row in enumerate(rows)]
    found = []
    for number, line in lines:
        try:
            found.append((f"{path}, line {number}", parse_json(line)))
        except (ValueError, RecursionError) as error:
            cut = "the line is truncated or altered; make the file again, or remove the line"
            raise InputError(
                f"{path}, line {number}, is not valid JSON ({error})", hint=hint or cut
            ) from error
    return found


def read_responses(
    path: str | Path, *, id_key: str | None = None, text_key: str | None = None
) -> list[Response]:
    """Read responses from our JSONL or from a benchmark's official file.

    Accepts JSON lines, a JSON list of objects, or one JSON object of id to text. The keys are found among
    ``id, image_id, question_id`` and ``response, caption, answer, text`` unless given; a row with several of either
    kind, or none, is refused.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"the response file {path} does not exist", hint="check the path")

    def unwrap(value: dict[str, Any]) -> Any:
        if isinstance(value.get("imgToEval"), dict):  # the input of the first CHAIR scorer
            return list(value["imgToEval"].values())
        if any(key in value for key in ID_KEYS):
            return [value]
        return [{"id": key, "response": entry} for key, entry in value.items()]

    return [_response(row, where, id_key, text_key) for where, row in read_rows(path, unwrap)]


def _response(row: Any, where: str, id_key: str | None, text_key: str | None) -> Response:
    if not isinstance(row, dict):
        raise InputError(f"{where}, is {json_type(row)}; expected an object with an id and a response")
    keys = _key(row, where, "id", id_key, ID_KEYS), _key(row, where, "text", text_key, TEXT_KEYS)
    identity, text = (row[key] for key in keys)
    if isinstance(identity, bool) or not isinstance(identity, (str, int)):
        raise InputError(f"{where}: the id {identity!r} is neither a string nor an integer")
    if not isinstance(text, str):
        raise InputError(f"{where}: the response of id {identity!r} is {json_type(text)}, not a string")
    others = {key: value for key, value in row.items() if isinstance(value, str) and key not in keys}
    questions = tuple(others[key] for key in QUESTION_KEYS if key in others)
    return Response(identity, text, questions, others.get("image"), others.get("label"))


def _key(row: Mapping[str, Any], where: str, what: str, wanted: str | None, known: Sequence[str]) -> str:
    candidates = [key for key in ([wanted] if wanted is not None else known) if key in row]
    if len(candidates) == 1:
        return candidates[0]
    seen = f"its keys are {', '.join(map(repr, row)) or 'none'}"
    if candidates:
        raise InputError(
            f"{where}, has several keys that may hold the {what}, {' and '.join(map(repr, candidates))}: {seen}",
            hint="name the keys of id and text, e.g. --keys image_id,caption",
        )
    expected = repr(wanted) if wanted else f"one of {', '.join(known)}"
    raise InputError(
        f"{where}, has no {what}: {seen}", hint=f"expected {expected}; --keys ID,TEXT names other keys"
    )


def check_questions(responses: Sequence[Response], asked_of: Callable[[Id], Question | None]) -> None:
    """Refuse responses to other questions than those of their ids, and responses that are the questions themselves."""
    repeated = 0
    for response in responses:
        if (asked := asked_of(response.id)) is None:
            continue
        if asked.text is not None:
            question = _plain(asked.text)
            if response.questions and not any(question in _plain(one) for one in response.questions):
                raise _other(response, "question", asked.text, response.questions[0])
            repeated += isinstance(response.text, str) and _plain(response.text) == question
        if response.image is not None:
            ours, theirs = (name.rsplit("/", 1)[-1] for name in (asked.image, response.image))
            if ours != theirs:
                raise _other(response, "image", asked.image, response.image)
        if asked.label is not None and response.label is not None and _plain(response.label) != asked.label:
            raise _other(response, "label", asked.label, response.label)
    if 2 * repeated > len(responses):
        raise InputError(
            f"{repeated} of {len(responses)} responses are the questions themselves",
            hint="name the keys of id and text, e.g. --keys image_id,caption",
        )


def _other(response: Response, what: str, ours: str, theirs: str) -> InputError:
    return InputError(
        f"the response of id {response.id!r} has the {what} {theirs[:200]!r}, but the benchmark's is {ours[:200]!r}",
        hint="the file has a different order or version; give each answer the id of its question",
    )


def _plain(text: str) -> str:
    """Return a question without differences in white space and case, which programs add."""
    return " ".join(text.split()).casefold()


def check_responses(
    responses: Iterable[Response],
    *,
    known: Collection[Id],
    ids: Collection[Id] | None = None,
) -> list[Response]:
    """Refuse responses that cannot be scored, naming the first problem.

    Every id must be one of ``known``; if ``ids`` are given, exactly these must have been answered.
    """
    checked: list[Response] = []
    answered: set[Id] = set()
    by_text = {str(identity): identity for identity in known}
    for index, response in enumerate(responses):
        if not isinstance(response.text, str):
            raise InputError(
                f"response {index} (id {response.id!r}) is {json_type(response.text)}, not a string"
            )
        # Official scorers silently confuse 1 and "1", or 1 and True.
        ours = by_text.get(str(response.id))
        if ours != response.id or isinstance(response.id, bool):
            kind = "a string" if isinstance(ours, str) else "an integer"
            hint = None if ours is None else f"the benchmark's id is {ours!r}, {kind}"
            raise InputError(f"response {index} has the unknown id {response.id!r}", hint=hint)
        if response.id in answered:
            raise InputError(
                f"id {response.id!r} was answered twice (again at response {index})",
                hint="keep one response for each id",
            )
        answered.add(response.id)
        checked.append(response)
    if ids is not None:
        _check_complete(answered, ids)
    return checked


def _check_complete(answered: set[Id], wanted: Collection[Id]) -> None:
    if missing := [identity for identity in wanted if identity not in answered]:
        listed = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{len(missing)} of {len(wanted)} ids have no response: {listed}",
            hint="finish the run, or score what there is (--allow-missing)",
        )
    if extra := sorted(answered - set(wanted), key=str):
        raise InputError(f"{len(extra)} responses answer ids that were not asked, the first is {extra[0]!r}")
