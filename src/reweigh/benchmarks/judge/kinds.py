"""The two kinds of judge: any OpenAI-compatible chat endpoint, as in the paper, and closed questions (systemone)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.benchmarks.data.store import data_root
from reweigh.benchmarks.judge.endpoint import DEFAULT_URL, Endpoint, PassingError
from reweigh.benchmarks.judge.protocol import (
    CachedJudge,
    Distribution,
    Judge,
    JudgeError,
    Request,
    ScaleQuestion,
    is_probability,
)
from reweigh.benchmarks.types import json_type
from reweigh.errors import InputError, UnknownNameError

DEFAULT_MODEL = "gpt-4.1-mini-2025-04-14"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"


class ChatEndpoint(Endpoint):
    """Asks a model for a chat completion; options are those of :class:`Endpoint`."""

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
        return {"model": self.model, "base_url": self.base_url}

    def ask(self, request: Request) -> str:
        """Return the reply's text; a refusal without text is an empty reply."""
        body = {
            key: value for key, value in request.to_json().items() if value is not None and key != "sample"
        }
        return self.call("chat/completions", {"model": self.model, **body}, self._content)

    def _content(self, found: Any) -> str:
        try:
            content = found["choices"][0]["message"]["content"]
        except (LookupError, TypeError) as error:
            raise PassingError(f"its answer is not a chat completion: {self._excerpt(found)}") from error
        if content is None:
            return ""
        if not isinstance(content, str):
            raise PassingError(f"its answer has {json_type(content)} instead of text")
        return self._redact(content)

    def _hint(self, status: int, message: str) -> str:
        if status == 404:
            return f"check the base URL and the model name {self.model!r}"
        return super()._hint(status, message)


LOCAL_URL = "http://localhost:8000/v1"
"""The default address of `transformers serve`."""

ROUTE = "systemone"
TIMEOUT = 300.0
"""Seconds per attempt; a local server answers one request at a time."""

MOST_QUESTIONS, MOST_IMAGES = 64, 4
"""Limits of one request."""


class SystemOne(Endpoint):
    """Puts closed questions to a model; options are those of :class:`Endpoint`."""

    def __init__(
        self, model: str, *, base_url: str = LOCAL_URL, timeout: float = TIMEOUT, **options: Any
    ) -> None:
        super().__init__(model, base_url=base_url, timeout=timeout, **options)

    def describe(self) -> dict[str, Any]:
        return {"kind": SYSTEMONE, "model": self.model, "base_url": self.base_url}

    def ask(self, question: ScaleQuestion) -> Distribution:
        """Return the probability of each level."""
        asked = {
            "type": "score",
            "instructions": question.instructions,
            "criteria": list(question.levels),
        }
        answer = self.decide(question.state, {"rating": asked})["rating"]
        try:
            return question.parse(answer.get("probabilities"))
        except InputError as error:
            raise self._malformed(error.message) from error

    def affirm(self, state: str, questions: Sequence[str], images: Sequence[str] = ()) -> list[float]:
        """Return the probability of yes to each question; ``images`` are data URLs that all of them are about."""
        asked = {str(number): {"type": "noul", "instructions": one} for number, one in enumerate(questions)}
        answers = self.decide(state, asked, images)
        found: list[float] = []
        for question, name in zip(questions, asked, strict=True):
            value = answers[name].get("noul")
            if not is_probability(value):
                raise self._malformed(f"the probability of yes to {question!r} is {self._excerpt(value)}")
            found.append(value)
        return found

    def decide(
        self, state: str, questions: Mapping[str, Mapping[str, Any]], images: Sequence[str] = ()
    ) -> dict[str, dict[str, Any]]:
        """Ask typed questions about one state in one request; return an answer of the same type for each."""
        if not 1 <= len(questions) <= MOST_QUESTIONS or len(images) > MOST_IMAGES:
            raise InputError(
                f"{len(questions)} questions about {len(images)} images in one request",
                hint=f"1 to {MOST_QUESTIONS} questions about at most {MOST_IMAGES} images",
            )
        body: dict[str, Any] = {"model": self.model, "state": state, "questions": dict(questions)}
        if images:
            body["images"] = list(images)
        return self.call(ROUTE, body, lambda found: self._answers(found, questions))

    def _answers(self, found: Any, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        answers = found.get("answers") if isinstance(found, dict) else None
        if not isinstance(answers, dict):
            raise self._malformed(f"it has no answers: {self._excerpt(found)}")
        who = found.get("model") or self.model
        # For `repository:file.gguf` the server returns only the repository.
        if who != self.model and not self.model.startswith(f"{who}:"):
            raise JudgeError(
                f"the {self.role} at {self.base_url} runs {self._excerpt(who)}, not {self.model!r}",
                hint="give the name of the model that the server runs",
            )
        for name, question in questions.items():
            answer = answers.get(name)
            if not isinstance(answer, dict) or answer.get("type") != question["type"]:
                raise self._malformed(
                    f"the answer to a {question['type']} question is {self._excerpt(answer)}"
                )
        return answers

    def _malformed(self, why: str) -> JudgeError:
        return JudgeError(
            f"the {self.role} at {self.base_url} returned an invalid answer: {why}",
            hint="the model or its server is at fault; asking again would not help",
        )

    def _hint(self, status: int, message: str) -> str:
        if status in (404, 405, 501):
            return f"does this server answer POST {self.base_url}/{ROUTE}? `transformers serve {self.model}` does"
        for part, hint in _HINTS.items():
            if part in message:
                return hint
        return super()._hint(status, message)


_HINTS = {
    "pinned to": "use the model name that the server was started with",
    "single tokens": "this model's vocabulary cannot answer: use another model, or set labels with --decision-config",
    "labels": "set suitable labels with --decision-config, or use another model",
    "image input": "use a model that accepts images",
}
"""What to do about a refusal, by a part of the server's message."""


CHAT, SYSTEMONE = KINDS = ("chat", "systemone")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """A judge behind an HTTP endpoint whose verdicts are cached on disk.

    Attributes:
        kind: ``chat``, the official judge, whose text is read; or ``systemone``, which answers closed questions.
        model: The judge model; the paper's by default, for ``chat`` only.
        url: Base URL of the server; by default OpenAI's, or this machine's for ``systemone``.
        key_variable: Environment variable that holds the key; by default OpenAI's for ``chat`` and none for ``systemone``.
        prompt: File with the judge's prompt, if not the benchmark's own.
        cache: Folder for verdicts; by default one below the data folder.
        rules: How a chat judge's reply is read: ``strict`` (the paper's, the default) or ``official``.
        concurrency: Questions to ask the judge at once.
        per_minute: Maximum number of questions per minute.
        timeout: Seconds per attempt; by default 60, or 300 for ``systemone``.
    """

    kind: str = CHAT
    model: str | None = None
    url: str | None = None
    key_variable: str | None = None
    prompt: Path | None = None
    cache: Path | None = None
    rules: str | None = None
    concurrency: int = 8
    per_minute: float | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("judge", self.kind, KINDS)
        if self.kind == SYSTEMONE and self.model is None:
            raise InputError(
                "the judge systemone needs the name of its model",
                hint="--judge-option model=NAME, as in `transformers serve NAME`",
            )
        if self.kind == SYSTEMONE and self.rules is not None:
            raise InputError(
                "rules say how to read a judge's text, but the judge systemone writes none",
                hint="leave out rules",
            )

    def open(self) -> CachedJudge:
        """Make the judge; the network is used only when it is asked something."""
        options: dict[str, Any] = {
            "per_minute": self.per_minute,
            "timeout": self.timeout,
            "base_url": self.url,
        }
        given = {name: value for name, value in options.items() if value is not None}
        judge: Judge
        if self.kind == SYSTEMONE:
            judge = SystemOne(str(self.model), key_variable=self.key_variable, **given)
        else:
            key_variable = self.key_variable or DEFAULT_KEY_VARIABLE
            judge = ChatEndpoint(self.model or DEFAULT_MODEL, key_variable=key_variable, **given)
        return CachedJudge(judge, self.cache or data_root() / "verdicts")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a judged benchmark."""
        given = {"judge": self.open(), "prompt": self.prompt, "concurrency": self.concurrency}
        return given if self.rules is None else given | {"rules": self.rules}
