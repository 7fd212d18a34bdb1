"""A judge that cannot be misread: closed questions at ``POST /v1/systemone``, a probability for every allowed answer.

The server reads the probabilities from one forward pass; nothing is generated and nothing is parsed. `transformers
serve MODEL` has the route, so an open model can judge locally and without a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.benchmarks.judge.endpoint import Endpoint
from reweigh.benchmarks.judge.protocol import Distribution, JudgeError, ScaleQuestion, is_probability
from reweigh.errors import InputError

LOCAL_URL = "http://localhost:8000/v1"
"""The default address of `transformers serve`."""

ROUTE = "systemone"
TIMEOUT = 300.0
"""Seconds per attempt; a local server answers its callers one after the other."""

MOST_QUESTIONS, MOST_IMAGES = 64, 4
"""What one request may carry."""


class SystemOne(Endpoint):
    """Puts closed questions to a model; options are those of :class:`Endpoint`."""

    def __init__(
        self, model: str, *, base_url: str = LOCAL_URL, timeout: float = TIMEOUT, **options: Any
    ) -> None:
        super().__init__(model, base_url=base_url, timeout=timeout, **options)

    def describe(self) -> dict[str, Any]:
        """Name kind, model and address, without credentials."""
        return {"kind": "systemone", "model": self.model, "base_url": self.base_url}

    def rate(self, question: ScaleQuestion) -> Distribution:
        """Ask for one of several levels in order."""
        asked = {
            "type": "score",
            "instructions": question.instructions,
            "criteria": list(question.levels),
        }
        answer = self.decide(question.state, {"rating": asked})["rating"]
        try:
            return Distribution.parse(answer.get("probabilities"), len(question.levels))
        except InputError as error:
            raise self._malformed(error.message) from error

    def affirm(self, state: str, questions: Sequence[str], images: Sequence[str] = ()) -> list[float]:
        """The probability of yes to each question; ``images`` are data URLs that all of them are about."""
        asked = {str(number): {"type": "noul", "instructions": one} for number, one in enumerate(questions)}
        answers = self.decide(state, asked, images)
        found: list[float] = []
        for question, name in zip(questions, asked, strict=True):
            value = answers[name].get("noul")
            if not is_probability(value):
                raise self._malformed(f"{question!r} has the probability of yes {self._excerpt(value)}")
            found.append(value)
        return found

    def decide(
        self, state: str, questions: Mapping[str, Mapping[str, Any]], images: Sequence[str] = ()
    ) -> dict[str, dict[str, Any]]:
        """Ask typed questions about one state in one request; returns an answer of the same type for each."""
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
"""What the server's own words mean for the user."""
