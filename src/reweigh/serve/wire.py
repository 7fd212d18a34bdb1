"""The request format: the supported fields of OpenAI's API, and our own under ``reweigh``.

A field that would change an answer but is not supported is refused, never ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

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
"""Fields of OpenAI's API that are not supported, with the values that have no effect."""

IRRELEVANT = frozenset(
    {"user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier"}
    | {"prompt_cache_key", "prompt_cache_retention", "verbosity"}
)
"""Fields that do not affect the answer."""

TURNS = 1_000
"""Messages of a conversation, and parts of a message."""
STOP_CHARACTERS = 256
"""Characters of one stop string."""
WORD_CHARACTERS = 100
CHECK_CHARACTERS = 20_000
"""Characters of a text to check, about five times the longest answer that a server gives by default."""


class Strict(BaseModel):
    """An object that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class TextPart(Strict):
    """Some text of a message."""

    type: Literal["text"]
    text: str


class ImageUrl(Strict):
    """Where an image is: in a data URL, or somewhere the server may fetch from."""

    url: str
    detail: str | None = None


class ImagePart(Strict):
    """An image of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(Strict):
    """One turn; an assistant's turn may have all fields of OpenAI's answers, the unsupported ones empty."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Part], Field(max_length=TURNS)]
    name: str | None = None
    refusal: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None

    def parts(self) -> list[TextPart | ImagePart]:
        """The content as a list."""
        return [TextPart(type="text", text=self.content)] if isinstance(self.content, str) else self.content


class ReweighOptions(Strict):
    """Settings of ReWEIGH, beside those of OpenAI."""

    decoder: str = "reweigh"
    table: str | None = None
    beta: float | list[float] | None = None
    layer: int | None = None
    trace: bool = False
    evidence: bool = False


class VllmOptions(Strict):
    """The same settings as vLLM takes them, under ``vllm_xargs``, so that a client can address either server."""

    reweigh: Literal["on", "off"] | None = None
    reweigh_table: str | None = None
    reweigh_beta: float | None = None
    reweigh_evidence: bool = False

    def options(self) -> ReweighOptions:
        """As our own."""
        own: dict[str, Any] = {"table": self.reweigh_table, "evidence": self.reweigh_evidence}
        if self.reweigh == "off":
            return ReweighOptions(decoder="base", **own)
        return ReweighOptions(beta=self.reweigh_beta, **own)


class StreamOptions(BaseModel):
    """What a stream holds besides text."""

    include_usage: bool = False


class Conversation(BaseModel):
    """What every endpoint that reads a picture takes."""

    messages: list[Message] = Field(min_length=1, max_length=TURNS)

    @property
    def characters(self) -> int:
        """Total length of all texts."""
        return sum(
            len(part.text) for turn in self.messages for part in turn.parts() if isinstance(part, TextPart)
        )


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
    vllm_xargs: VllmOptions | None = None

    @field_validator("reweigh", mode="before")
    @classmethod
    def _read_switch(cls, given: Any) -> Any:
        switch: dict[str, Any] = {"on": {}, "off": {"decoder": "base"}}
        return switch.get(given, given) if isinstance(given, str) else given

    @property
    def options(self) -> ReweighOptions:
        """Settings of ReWEIGH; defaults for what is not given."""
        if self.vllm_xargs is not None:
            return self.vllm_xargs.options()
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
