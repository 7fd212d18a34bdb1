"""Verdicts stored by the content of the question, so that a repeated run resumes and costs nothing.

One sealed file for each question; one that cannot be read, was altered or answers another question is asked for again.
Who answers is part of the question, so that judges of two kinds never share a verdict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from reweigh.benchmarks.judge.protocol import Distribution, Judge, Rater, Request, ScaleQuestion, close_judge
from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import sha256_json
from reweigh.files.seals import read_sealed, write_sealed
from reweigh.text import replace_surrogates


class Describing(Protocol):
    """A judge that can name itself."""

    def describe(self) -> dict[str, Any]:
        """Name model and address, without any secret."""
        ...


Who = TypeVar("Who", bound=Describing)
T = TypeVar("T")


class _Cached(Generic[Who]):
    """Stores the verdicts of one judge in a folder; ``asked`` and ``found`` count new and stored ones."""

    def __init__(self, judge: Who, folder: str | Path) -> None:
        self._judge = judge
        self._folder = Path(folder)
        self._under_way: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self.asked = 0
        self.found = 0

    def describe(self) -> dict[str, Any]:
        """Name the judge behind the cache: the cache itself changes no verdict."""
        return self._judge.describe()

    def close(self) -> None:
        """Close the judge behind the cache."""
        close_judge(self._judge)

    def _kept_or(
        self, asked: Mapping[str, Any], read: Callable[[Any], T], ask: Callable[[], tuple[T, Any]]
    ) -> T:
        """The kept verdict as ``read`` takes it, or that of ``ask``, kept in the form it gives besides."""
        question = {"judge": self._judge.describe(), **asked}
        key = sha256_json(question)
        path = self._folder / key[:2] / f"{key}.json"
        with self._lock:
            own = self._under_way.setdefault(key, threading.Lock())
        # Two equal questions at the same time: the second waits for the first one's verdict.
        with own:
            verdict = _read(path, question, read)
            if missing := verdict is None:
                verdict, reply = ask()
                write_sealed(path, {"question": question, "reply": reply})
            self._count(found=not missing)
            return verdict

    def _count(self, *, found: bool) -> None:
        with self._lock:
            self.found += found
            self.asked += not found


class CachedJudge(_Cached[Judge]):
    """A judge that asks another one only what is not on disk yet."""

    def ask(self, request: Request) -> str:
        """Return the stored reply, or ask and store it."""

        def fresh() -> tuple[str, str]:
            reply = replace_surrogates(self._judge.ask(request))
            return reply, reply

        return self._kept_or(request.to_json(), _text, fresh)


class CachedRater(_Cached[Rater]):
    """A rater that asks another one only what is not on disk yet."""

    def rate(self, question: ScaleQuestion) -> Distribution:
        """Return the stored distribution, or ask and store it."""

        def kept(reply: Any) -> Distribution:
            return Distribution.parse(reply, len(question.levels))

        def fresh() -> tuple[Distribution, list[float]]:
            found = self._judge.rate(question)
            return found, list(found.probabilities)

        return self._kept_or(question.to_json(), kept, fresh)


def _read(path: Path, question: Mapping[str, Any], read: Callable[[Any], T]) -> T | None:
    try:
        kept = read_sealed(path)
        return read(kept.get("reply")) if kept.get("question") == question else None
    except (ArtifactError, InputError):
        return None


def _text(reply: Any) -> str:
    if not isinstance(reply, str):
        raise InputError("the stored reply is not text")
    return reply
