"""A judge at any OpenAI-compatible chat endpoint, as in the official programs and the paper."""

from __future__ import annotations

from typing import Any

from reweigh.benchmarks.judge.endpoint import DEFAULT_URL, Endpoint, PassingError
from reweigh.benchmarks.judge.protocol import Request

DEFAULT_MODEL = "gpt-4.1-mini-2025-04-14"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"


class ChatEndpoint(Endpoint):
    """Asks a model for a completion; options are those of :class:`Endpoint`."""

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        base_url: str = DEFAULT_URL,
        key_variable: str | None = DEFAULT_KEY_VARIABLE,
        **options: Any,
    ) -> None:
        super().__init__(model, base_url=base_url, key_variable=key_variable, **options)

    def describe(self) -> dict[str, Any]:
        """Name model and address, without credentials."""
        return {"model": self.model, "base_url": self.base_url}

    def ask(self, request: Request) -> str:
        """Return the reply's text; a refusal without text is an empty reply."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [dict(message) for message in request.messages],
            "temperature": request.temperature,
        }
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        return self.call("chat/completions", body, self._content)

    def _content(self, found: Any) -> str:
        try:
            content = found["choices"][0]["message"]["content"]
        except (LookupError, TypeError) as error:
            raise PassingError(f"its answer is not a chat completion: {self._excerpt(found)}") from error
        if content is None:
            return ""
        if not isinstance(content, str):
            raise PassingError(f"its answer has a {type(content).__name__} instead of text")
        return self._redact(content)

    def _hint(self, status: int, message: str) -> str:
        if status == 404:
            return f"check the base URL and the model name {self.model!r}"
        return super()._hint(status, message)
