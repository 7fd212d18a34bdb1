"""The request format: the supported fields of OpenAI's, and our own under ``reweigh``.

A field that would change an answer but is not supported is refused, never ignored.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from reweigh.serve.problem import Problem

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
"""Fields of OpenAI's that are not supported, with the values that have no effect."""

IRRELEVANT = frozenset(
    {"user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier"}
    | {"prompt_cache_key", "prompt_cache_retention", "verbosity"}
)
"""Fields that do not affect the answer."""


STOP_CHARACTERS = 256
"""Characters of one stop string."""
WORD_CHARACTERS = 100
CHECK_CHARACTERS = 20_000
"""Characters of a text to check, about five times the longest answer that a server gives by default."""
ECHOED_CHARACTERS = 60
"""Characters of a client's own words that an error repeats."""


class TextPart(BaseModel):
    """Some text of a message."""

    type: Literal["text"]
    text: str


class ImageUrl(BaseModel):
    """Where an image is: in a data URL, or somewhere the server may fetch from."""

    url: str
    detail: str | None = None


class ImagePart(BaseModel):
    """An image of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(BaseModel):
    """One turn."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]

    def parts(self) -> list[TextPart | ImagePart]:
        """The content as a list."""
        return [TextPart(type="text", text=self.content)] if isinstance(self.content, str) else self.content


class ReweighOptions(BaseModel):
    """Settings of ReWEIGH, beside those of OpenAI."""

    model_config = ConfigDict(extra="forbid")

    decoder: str = "reweigh"
    beta: float | list[float] | None = None
    layer: int | None = None
    trace: bool = False
    evidence: bool = False


class StreamOptions(BaseModel):
    """What a stream holds besides text."""

    include_usage: bool = False


class Conversation(BaseModel):
    """What every endpoint that looks at a picture takes."""

    messages: list[Message] = Field(min_length=1)


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
    n: int = Field(default=1, ge=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    reweigh: ReweighOptions | None = None

    @field_validator("reweigh", mode="before")
    @classmethod
    def _read_off(cls, given: Any) -> Any:
        return {"decoder": "base"} if given == "off" else given

    @property
    def options(self) -> ReweighOptions:
        """Settings of ReWEIGH, the defaults where none are given."""
        return self.reweigh or ReweighOptions()

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end the answer."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(given)


class HeatRequest(Conversation):
    """``POST /inspect/heat``."""

    token: int | None = Field(default=None, ge=0)
    word: str | None = Field(default=None, max_length=WORD_CHARACTERS)


class CheckRequest(Conversation):
    """``POST /inspect/check``."""

    text: str = Field(max_length=CHECK_CHARACTERS)
    layer: int | None = None


Body = TypeVar("Body", bound=BaseModel)


def parse(kind: type[Body], body: bytes) -> Body:
    """Read a JSON body, or say which field is wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:ECHOED_CHARACTERS]
        message = f"{where}: {first['msg']}" if where else str(first["msg"])
        raise Problem(400, message, param=where or None, code="invalid_value") from None


def parse_chat(body: bytes) -> ChatRequest:
    """Read a chat request; what is not served is refused."""
    asked = parse(ChatRequest, body)
    for name, value in (asked.model_extra or {}).items():
        if name in IRRELEVANT or value is None:
            continue
        if name not in NEUTRAL:
            raise _unknown_field(name)
        if value not in NEUTRAL[name]:
            raise Problem(400, f"{name} is not supported", param=name, code="unsupported_field")
    if len(asked.stops) > 4 or not all(0 < len(stop) <= STOP_CHARACTERS for stop in asked.stops):
        message = f"stop: give one to four strings of 1 to {STOP_CHARACTERS} characters"
        raise Problem(400, message, param="stop", code="invalid_value")
    if asked.top_logprobs is not None and not asked.logprobs:
        raise Problem(400, "top_logprobs needs logprobs", param="top_logprobs", code="invalid_value")
    beta = asked.options.beta
    if isinstance(beta, list) and len(beta) != asked.n:
        raise Problem(
            400,
            f"reweigh.beta: {len(beta)} values were given for n = {asked.n}; give one number, or one for each choice",
            param="reweigh.beta",
            code="invalid_value",
        )
    return asked


def _unknown_field(name: str) -> Problem:
    """Refuse a field, with a suggestion where its name is close to one that is served."""
    shown = name if len(name) <= ECHOED_CHARACTERS else f"{name[:ECHOED_CHARACTERS]}..."
    near = difflib.get_close_matches(name[:ECHOED_CHARACTERS], [*ChatRequest.model_fields, *NEUTRAL], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return Problem(400, f"{shown}: this server has no such field{hint}", param=shown, code="unknown_field")
