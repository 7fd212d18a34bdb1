"""Read request bodies within bounds; report the first error in a sentence, and suggest the nearest name."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from reweigh.serve.bounds import Bounds
from reweigh.serve.problem import Problem, invalid
from reweigh.serve.wire import (
    IRRELEVANT,
    NEUTRAL,
    STOP_CHARACTERS,
    ChatRequest,
    ReweighOptions,
    VllmOptions,
)

Body = TypeVar("Body", bound=BaseModel)

VALUES = 10_000
"""Commas in a body beside those in its texts. Millions of fields would keep the event loop busy for a minute."""
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
"""Our sentences for pydantic's types of errors."""
FIELDS = {
    "reweigh": tuple(ReweighOptions.model_fields),
    "vllm_xargs": tuple(VllmOptions.model_fields),
    "messages": ("role", "content", "name", "type", "text", "image_url", "url", "detail"),
}
"""Names of the fields inside those that refuse unknown ones."""
PARTS = ("text", "image_url")
BRANCHES = ("str", "float", "int", "none")


async def read_body(request: Request, bounds: Bounds, hold: Callable[[int], None]) -> bytes:
    """The JSON body of a request; refused if it is too long or too slow.

    Args:
        hold: Called with the size of each part; refuses if the server holds too many bodies.

    Raises:
        Problem: With the status for the client.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(400, "the Content-Type must be application/json", code="not_json")
    most, kept = bounds.body_bytes, bytearray()
    too_long = Problem(413, f"the request's body has more than {most:,} bytes", code="body_too_large")
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise too_long
    try:
        async with asyncio.timeout(bounds.body_seconds):
            async for chunk in request.stream():
                hold(len(chunk))
                kept += chunk
                if len(kept) > most:
                    raise too_long
    except TimeoutError:
        raise Problem(408, "the request's body did not arrive in time", code="timeout") from None
    if kept.count(b",") > VALUES + bounds.prompt_tokens:
        raise Problem(400, "the request's body has too many values", code="body_too_large")
    return bytes(kept)


def parse(kind: type[Body], body: bytes) -> Body:
    """Read a JSON body, or say which field is wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise _problem(max(found, key=_nearness)) from None


def parse_chat(body: bytes) -> ChatRequest:
    """Read a chat request; refuse what is not supported."""
    asked = parse(ChatRequest, body)
    for name, value in (asked.model_extra or {}).items():
        if name in IRRELEVANT or value is None:
            continue
        if name not in NEUTRAL:
            raise _unknown_field(name, name, [*ChatRequest.model_fields, *NEUTRAL])
        if value not in NEUTRAL[name]:
            raise invalid(name, f"{name} is not supported", code="unsupported_field")
    if len(asked.stops) > 4 or not all(0 < len(stop) <= STOP_CHARACTERS for stop in asked.stops):
        raise _wrong("stop", f"give one to four strings of 1 to {STOP_CHARACTERS} characters")
    if asked.top_logprobs is not None and not asked.logprobs:
        raise _wrong("top_logprobs", "needs logprobs")
    if asked.reweigh is not None and asked.vllm_xargs is not None:
        raise _wrong("vllm_xargs", "give either reweigh or vllm_xargs")
    beta = asked.options.beta
    if isinstance(beta, list) and len(beta) != asked.n:
        told = f"{len(beta)} values were given for n = {asked.n}; give one number, or one for each choice"
        raise _wrong("reweigh.beta", told)
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
    where = ".".join(place)
    if kind == "extra_forbidden":
        return _unknown_field(where, place[-1], FIELDS[place[0]])
    said = SENTENCES.get(kind, "is invalid").format_map(error.get("ctx", {}))
    if kind == "literal_error" and isinstance(given, str):
        said += did_you_mean(given, re.findall(r"'(.*?)'", error["ctx"]["expected"]))
    return _wrong(shortened(where), said)


def _nearness(error: Mapping[str, Any]) -> tuple[int, bool]:
    """Rank the errors of a union's branches: the deepest is about what was meant, then one beyond a wrong type."""
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


def _wrong(where: str, said: str) -> Problem:
    return invalid(where or None, f"{where}: {said}" if where else said)


def _unknown_field(where: str, name: str, known: Iterable[str]) -> Problem:
    """Refuse a field, and suggest the supported one with the nearest name."""
    shown = shortened(where)
    return invalid(
        shown, f"{shown}: this server has no such field{did_you_mean(name, known)}", code="unknown_field"
    )
