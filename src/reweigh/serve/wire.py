"""The request format: the supported fields of OpenAI's API, and our own under ``reweigh``.

A field that would change an answer but is not supported is refused, never ignored.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from starlette.requests import Request

from reweigh.errors import UnknownNameError
from reweigh.serve.bounds import Bounds
from reweigh.serve.problem import Problem, invalid

Body = TypeVar("Body", bound=BaseModel)

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "web_search_options": (),
}
"""Unsupported fields of OpenAI's API, with the values that have no effect."""
OF_TEXT = frozenset({"tools", "tool_choice", "functions", "function_call", "response_format"})

IRRELEVANT = frozenset(
    {"user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier"}
    | {"prompt_cache_key", "prompt_cache_retention", "verbosity"}
)
"""Fields that do not affect the answer."""

NOTES = frozenset({"provider_specific_fields"})
"""Fields of a message that clients add to the answers they were given."""

TURNS = 1_000
"""Messages of a conversation, and parts of a message."""
LARGEST = 2**31
"""No number that an error repeats is larger; Python reads thousands of digits."""
CHOICES = 16
STOPS = 4
STOP_CHARACTERS = 256
WORD_CHARACTERS = 100
CHECK_CHARACTERS = 20_000
"""Characters of a text to check, about five times the longest answer that a server gives by default."""
SAID = 4_096
"""Tokens of an answer after which words are completed."""
CANDIDATES = 12
"""Tokens whose words are completed at once; each is a short generation."""
BODY_SECONDS = 30.0
"""Time in which the body of a request must arrive."""
VALUES = 40_000
"""Commas in a body, those of its texts included. Millions of fields would keep the event loop busy for a minute."""
ECHOED_CHARACTERS = 60
"""Characters of a client's own words that an error repeats."""


class Strict(BaseModel):
    """An object that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class TextPart(Strict):
    """Some text of a message."""

    type: Literal["text"]
    text: str


class ImageUrl(Strict):
    """Where an image is: in a data URL, or somewhere the server may fetch from.

    Attributes:
        min_pixels: A smaller image is enlarged to this area.
        max_pixels: A larger image is shrunk to this area.
    """

    url: str
    detail: str | None = None
    min_pixels: int | None = Field(default=None, ge=1, lt=LARGEST)
    max_pixels: int | None = Field(default=None, ge=1, lt=LARGEST)

    @model_validator(mode="after")
    def _check_order(self) -> ImageUrl:
        if (self.min_pixels or 0) > (self.max_pixels or math.inf):
            raise _wrong("min_pixels", "should not be greater than max_pixels")
        return self


class ImagePart(Strict):
    """An image of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


def _as_parts(given: Any) -> Any:
    return [{"type": "text", "text": given}] if isinstance(given, str) else given


def _as_list(given: Any) -> Any:
    if given is None:
        return []
    return [given] if isinstance(given, str) else given


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(Strict):
    """One turn; an assistant's turn may have all fields of OpenAI's answers, the unsupported ones empty."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[Part], Field(max_length=TURNS), BeforeValidator(_as_parts)]
    name: str | None = None
    refusal: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: Any) -> Any:
        """Leave out what is null, and what other clients note about an answer; an assistant may have said nothing."""
        if not isinstance(given, dict):
            return given
        kept = {
            name: value
            for name, value in given.items()
            if name in ("role", *cls.model_fields) or (value is not None and name not in NOTES)
        }
        if kept.get("role") == "assistant" and kept.get("content") is None:
            kept["content"] = []
        return kept

    @property
    def texts(self) -> list[str]:
        """Its texts in order."""
        return [part.text for part in self.content if isinstance(part, TextPart)]


class ReweighOptions(Strict):
    """Settings of ReWEIGH."""

    decoder: str = "reweigh"
    beta: float | list[float] | None = None
    layer: int | None = Field(default=None, gt=-LARGEST, lt=LARGEST)
    trace: bool = False
    evidence: bool = False


class StreamOptions(BaseModel):
    """What a stream holds besides text."""

    include_usage: bool = False


class Conversation(BaseModel):
    """What every endpoint that reads a picture takes."""

    messages: list[Message] = Field(min_length=1, max_length=TURNS)

    @property
    def texts(self) -> list[str]:
        """All texts in order."""
        return [text for message in self.messages for text in message.texts]


class ChatRequest(Conversation):
    """``POST /v1/chat/completions``."""

    model_config = ConfigDict(extra="allow")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, lt=LARGEST)
    repetition_penalty: float | None = Field(default=None, gt=0, le=100)
    chat_template_kwargs: dict[str, Any] | None = None
    n: int = Field(default=1, ge=1, le=CHOICES)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: Annotated[list[str], BeforeValidator(_as_list)] = []
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    reweigh: ReweighOptions | None = None

    @field_validator("reweigh", mode="before")
    @classmethod
    def _read_switch(cls, given: Any) -> Any:
        switch: dict[str, Any] = {"on": {}, "off": {"decoder": "base"}}
        return switch.get(given, given) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _refuse_unsupported(self) -> ChatRequest:
        for name, value in (self.model_extra or {}).items():
            if name in IRRELEVANT or value is None:
                continue
            if name not in NEUTRAL:
                raise unknown_name("field", name, ChatRequest.model_fields, param=name, code="unknown_field")
            if value not in NEUTRAL[name]:
                raise _unsupported(name)
        if len(self.stop) > STOPS or not all(0 < len(stop) <= STOP_CHARACTERS for stop in self.stop):
            raise _wrong("stop", f"give at most {STOPS} strings of 1 to {STOP_CHARACTERS} characters")
        if self.top_logprobs is not None and not self.logprobs:
            raise _wrong("top_logprobs", "needs logprobs")
        beta = self.options.beta
        if isinstance(beta, list) and len(beta) != self.n:
            told = f"{len(beta)} values were given for n = {self.n}; give one number, or one for each choice"
            raise _wrong("reweigh.beta", told)
        return self

    @property
    def asked_tokens(self) -> int | None:
        """How long the answer may be, as far as the client is concerned."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def options(self) -> ReweighOptions:
        """Settings of ReWEIGH under our names; defaults for what is not given."""
        return self.reweigh or ReweighOptions()


class HeatRequest(Conversation):
    """``POST /inspect/heat``."""

    token: int | None = Field(default=None, ge=0, lt=LARGEST)
    word: str | None = Field(default=None, max_length=WORD_CHARACTERS)


class WordsRequest(Conversation):
    """``POST /inspect/words``."""

    said: list[Annotated[int, Field(ge=0, lt=LARGEST)]] = Field(default=[], max_length=SAID)
    tokens: list[Annotated[int, Field(ge=0, lt=LARGEST)]] = Field(min_length=1, max_length=CANDIDATES)


class CheckRequest(Conversation):
    """``POST /inspect/check``."""

    text: str = Field(max_length=CHECK_CHARACTERS)
    layer: int | None = Field(default=None, gt=-LARGEST, lt=LARGEST)


FIELDS: dict[str, Sequence[str]] = {
    "reweigh": tuple(ReweighOptions.model_fields),
    "messages": (
        "role",
        "content",
        "name",
        "type",
        "text",
        "image_url",
        "url",
        "detail",
        "min_pixels",
        "max_pixels",
    ),
}
"""Names of the fields inside those that refuse unknown ones."""
SENTENCES = {
    "missing": "this field is required",
    "none_required": "is not supported; leave it out",
    "union_tag_not_found": "needs a type",
    "union_tag_invalid": "the type should be one of {expected_tags}",
}
"""Our sentences where pydantic's own would be obscure or repeat a value of any length."""


async def read_body(request: Request, bounds: Bounds, hold: Callable[[int], None]) -> bytes:
    """Read the JSON body of a request; refuse one that is too long or too slow.

    Args:
        hold: Called with the size of each part; refuses if the server holds too many bytes.

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
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                hold(len(chunk))
                kept += chunk
                if len(kept) > most:
                    raise too_long
    except TimeoutError:
        raise Problem(408, "the request's body did not arrive in time", code="timeout") from None
    if kept.count(b",") > VALUES:
        raise Problem(400, "the request's body has too many values", code="body_too_large")
    return bytes(kept)


def parse(kind: type[Body], body: bytes) -> Body:
    """Read a JSON body, or say which field is wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        # the deepest error is about the branch of a union that was meant
        found = max(error.errors(include_url=False), key=lambda one: len(one["loc"]))
        raise _problem(found) from None


def unknown_name(
    kind: str, name: str, known: Iterable[str], *, param: str, code: str = "invalid_value", status: int = 400
) -> Problem:
    """Refuse a name, with the nearest and all known ones."""
    error = UnknownNameError(kind, _shortened(name), known)
    return invalid(_shortened(param), f"{error.message} ({error.hint})", code=code, status=status)


def _problem(error: Mapping[str, Any]) -> Problem:
    place = _place(error["loc"])
    where = ".".join(place)
    if error["type"] == "extra_forbidden":
        return unknown_name("field", place[-1], FIELDS[place[0]], param=where, code="unknown_field")
    if error["type"] in SENTENCES:
        return _wrong(where, SENTENCES[error["type"]].format_map(error.get("ctx", {})))
    return _wrong(where, error["msg"].replace("Input should", "should" if where else "the body should", 1))


def _place(location: Sequence[str | int]) -> list[str]:
    """Return the fields and indices of pydantic's location, without the branches of unions."""
    kept: list[str] = []
    for before, part in zip((None, *location), location, strict=False):
        is_kind_of_part = isinstance(before, int) and part in ("text", "image_url")
        is_branch = part in ("float", "list[float]")
        if not is_kind_of_part and not is_branch:
            kept.append(str(part))
    return kept


def _unsupported(name: str) -> Problem:
    known = " or ".join(json.dumps(value) for value in NEUTRAL[name])
    told = f"leave it out or send {known}" if known else "leave it out"
    why = "this server writes plain text and calls no tools; " if name in OF_TEXT else ""
    return invalid(name, f"{name} is not supported: {why}{told}", code="unsupported_field")


def _wrong(where: str, said: str) -> Problem:
    where = _shortened(where)
    return invalid(where or None, f"{where}: {said}" if where else said)


def _shortened(text: str) -> str:
    return text if len(text) <= ECHOED_CHARACTERS else f"{text[:ECHOED_CHARACTERS]}..."
