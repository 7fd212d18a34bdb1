"""Verdicts stored by the content of their question, so that a repeated run resumes and costs nothing.

Each verdict is a sealed file; one that cannot be read, was altered or answers another question is asked for again.
The judge is part of the question, so that two judges never share a verdict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from reweigh.benchmarks.judge.protocol import Distribution, Judge, Rater, Request, ScaleQuestion, close_judge
from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import sha256_json
from reweigh.files.seals import read_sealed, write_sealed
from reweigh.text import replace_surrogates

Who = TypeVar("Who", Judge, Rater)
T = TypeVar("T")


class _Cached(Generic[Who]):
    """Stores the verdicts of one judge in a folder."""

    def __init__(self, judge: Who, folder: str | Path) -> None:
        self._judge: Who = judge
        self._folder = Path(folder)
        self._in_progress: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """Name the judge behind the cache: the cache itself changes no verdict."""
        return self._judge.describe()

    def close(self) -> None:
        close_judge(self._judge)

    def _verdict(self, asked: Mapping[str, Any], ask: Callable[[], Any], read: Callable[[Any], T]) -> T:
        """Return the stored verdict, or ask and store the reply; ``read`` turns a reply into a verdict."""
        question = {"judge": self._judge.describe(), **asked}
        key = sha256_json(question)
        path = self._folder / key[:2] / f"{key}.json"
        with self._lock:
            own = self._in_progress.setdefault(key, threading.Lock())
        # Of two equal questions at the same time, the second waits for the first one's verdict.
        with own:
            with suppress(ArtifactError, InputError):
                stored = read_sealed(path)
                if stored.get("question") == question:
                    return read(stored.get("reply"))
            reply = ask()
            write_sealed(path, {"question": question, "reply": reply})
            return read(reply)


class CachedJudge(_Cached[Judge]):
    """A judge that asks another one only what is not cached yet."""

    def ask(self, request: Request) -> str:

        def read(reply: Any) -> str:
            if not isinstance(reply, str):
                raise InputError("the stored reply is not text")
            return reply

        return self._verdict(request.to_json(), lambda: replace_surrogates(self._judge.ask(request)), read)


class CachedRater(_Cached[Rater]):
    """A rater that asks another one only what is not cached yet."""

    def rate(self, question: ScaleQuestion) -> Distribution:
        return self._verdict(
            question.to_json(),
            lambda: list(self._judge.rate(question).probabilities),
            lambda reply: Distribution.parse(reply, len(question.levels)),
        )
