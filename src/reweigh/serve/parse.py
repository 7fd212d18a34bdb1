"""Reading request bodies: the first thing that is wrong, in a sentence, with a suggestion where a name is close."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from reweigh.serve.problem import Problem
from reweigh.serve.wire import (
    IRRELEVANT,
    NEUTRAL,
    STOP_CHARACTERS,
    ChatRequest,
    ReweighOptions,
    VllmOptions,
)

Body = TypeVar("Body", bound=BaseModel)

ECHOED_CHARACTERS = 60
"""Characters of a client's own words that an error repeats."""

SENTENCES = {
    "missing": "this field is required",
    "json_invalid": "the body is not valid JSON",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "is too large",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "none_required": "is not supported; leave it out",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "literal_error": "must be {expected}",
    "union_tag_not_found": "needs a type",
    "union_tag_invalid": "must have the type {expected_tags}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "string_too_long": "must have at most {max_length} characters",
}
"""Our words for pydantic's kinds of errors."""
FIELDS = {
    "reweigh": tuple(ReweighOptions.model_fields),
    "vllm_xargs": tuple(VllmOptions.model_fields),
    "messages": ("role", "content", "name", "type", "text", "image_url", "url", "detail"),
}
"""Names of the fields inside those that refuse unknown ones."""
PARTS = ("text", "image_url")
BRANCHES = ("str", "float", "int", "none")


def parse(kind: type[Body], body: bytes) -> Body:
    """Read a JSON body, or say which field is wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise _problem(max(found, key=_nearness)) from None


def parse_chat(body: bytes) -> ChatRequest:
    """Read a chat request; what is not served is refused."""
    asked = parse(ChatRequest, body)
    for name, value in (asked.model_extra or {}).items():
        if name in IRRELEVANT or value is None:
            continue
        if name not in NEUTRAL:
            raise _unknown_field(name, [*ChatRequest.model_fields, *NEUTRAL])
        if value not in NEUTRAL[name]:
            raise Problem(400, f"{name} is not supported", param=name, code="unsupported_field")
    if len(asked.stops) > 4 or not all(0 < len(stop) <= STOP_CHARACTERS for stop in asked.stops):
        raise _invalid("stop", f"give one to four strings of 1 to {STOP_CHARACTERS} characters")
    if asked.top_logprobs is not None and not asked.logprobs:
        raise _invalid("top_logprobs", "needs logprobs")
    if asked.reweigh is not None and asked.vllm_xargs is not None:
        raise _invalid("vllm_xargs", "give either reweigh or vllm_xargs")
    beta = asked.options.beta
    if isinstance(beta, list) and len(beta) != asked.n:
        raise _invalid(
            "reweigh.beta",
            f"{len(beta)} values were given for n = {asked.n}; give one number, or one for each choice",
        )
    return asked


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion to append to a message, or nothing."""
    near = difflib.get_close_matches(name[:ECHOED_CHARACTERS], list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def shortened(text: str) -> str:
    """A client's own words as an error repeats them."""
    return text if len(text) <= ECHOED_CHARACTERS else f"{text[:ECHOED_CHARACTERS]}..."


def _problem(error: Mapping[str, Any]) -> Problem:
    kind, given, place = error["type"], error["input"], _place(error["loc"])
    where = shortened(".".join(place))
    if kind == "extra_forbidden":
        return _unknown_field(place[-1], FIELDS[place[0]], where)
    said = SENTENCES.get(kind, "is invalid").format_map(error.get("ctx", {}))
    if kind == "literal_error" and isinstance(given, str):
        said += did_you_mean(given, re.findall(r"'(.*?)'", error["ctx"]["expected"]))
    return _invalid(where, said)


def _nearness(error: Mapping[str, Any]) -> tuple[int, bool]:
    """Of the errors of a union's branches, the deepest is about what was meant, then one of more than a wrong kind."""
    return len(error["loc"]), not error["type"].endswith("_type")


def _place(location: Sequence[str | int]) -> list[str]:
    """Fields and indices of pydantic's location, without the branches of unions."""
    kept: list[str] = []
    for before, part in zip((None, *location), location, strict=False):
        is_kind_of_part = isinstance(before, int) and part in PARTS
        is_branch = isinstance(part, str) and ("[" in part or part in BRANCHES)
        if not is_kind_of_part and not is_branch:
            kept.append(str(part))
    return kept


def _invalid(where: str, said: str) -> Problem:
    return Problem(400, f"{where}: {said}" if where else said, param=where or None, code="invalid_value")


def _unknown_field(name: str, known: Iterable[str], where: str | None = None) -> Problem:
    """Refuse a field, with a suggestion where its name is close to one that is served."""
    shown = shortened(name) if where is None else where
    hint = did_you_mean(name, known)
    return Problem(400, f"{shown}: this server has no such field{hint}", param=shown, code="unknown_field")
