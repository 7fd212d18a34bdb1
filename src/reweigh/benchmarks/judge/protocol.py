"""A judge's questions and answers: text for a chat request, or probabilities over the levels of a closed question.

The rating of a closed question is the most likely level, the lower one of equals; the expected rating is
sum(level * p) / sum(p). ``ask_all`` asks several questions at once, ``CachedJudge`` keeps the verdicts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar

from reweigh.errors import ArtifactError, InputError, ReweighError
from reweigh.files.artifacts import sha256_json
from reweigh.files.seals import read_sealed, write_sealed
from reweigh.text import replace_surrogates

T = TypeVar("T")


class JudgeError(ReweighError):
    """The judge did not reply, and asking again would not help."""


class Judge(Protocol):
    """Answers a :class:`Request` with text or, of the kind systemone, a :class:`ScaleQuestion` with a distribution."""

    def ask(self, question: Any) -> Any:
        """Return the reply, or raise :class:`JudgeError`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Name model and address, without any secret, for records and cache keys; ``kind`` too if it is not ``chat``."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A user message for a chat judge; ``sample`` distinguishes repeated draws of the same question."""

    text: str
    temperature: float = 0.0
    max_tokens: int | None = None
    sample: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", replace_surrogates(self.text))

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain JSON."""
        return {
            "messages": [{"role": "user", "content": self.text}],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "sample": self.sample,
        }

    def parse(self, reply: Any) -> str:
        """Check that a reply is text."""
        if not isinstance(reply, str):
            raise InputError("the reply is not text")
        return replace_surrogates(reply)


def close_judge(judge: object) -> None:
    """Close a judge that holds connections; one without ``close`` holds none."""
    if (close := getattr(judge, "close", None)) is not None:
        close()


def ask_all(
    tasks: Sequence[Callable[[], T]], *, concurrency: int, advance: Callable[[], Any] | None = None
) -> list[T]:
    """Run tasks on a few threads and return their results in order.

    The first failure cancels what has not started and is raised; earlier answers are in the cache, so the next
    run resumes from there.
    """
    if type(concurrency) is not int or concurrency < 1:
        raise InputError(f"concurrency must be a whole number of at least 1, not {concurrency!r}")
    answers: dict[int, T] = {}
    # Daemon threads: those of an executor would keep a stopped command alive until the last question times out.
    with ThreadPool(max(1, min(concurrency, len(tasks)))) as pool:
        for index, answer in pool.imap_unordered(lambda one: (one[0], one[1]()), enumerate(tasks)):
            answers[index] = answer
            if advance is not None:
                advance()
    return [answers[index] for index in range(len(tasks))]


MOST_LEVELS = 26
SLACK = 0.01
"""How far the sum of probabilities may be from 1: some servers round them to two or three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleQuestion:
    """One question whose only answers are ordered levels.

    Attributes:
        state: What is judged.
        instructions: What is asked about it.
        levels: What each level means, the lowest first.
    """

    state: str
    instructions: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.levels) <= MOST_LEVELS:
            raise InputError(f"a question has {len(self.levels)} levels; it may have 2 to {MOST_LEVELS}")
        object.__setattr__(self, "state", replace_surrogates(self.state))

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain JSON."""
        return {"state": self.state, "instructions": self.instructions, "levels": list(self.levels)}

    def parse(self, reply: Any) -> Distribution:
        """Read probabilities by level, ``{"0": p, "1": p, ...}``, or in order; exactly one for each level."""
        count = len(self.levels)
        if isinstance(reply, Mapping):
            wanted = [str(level) for level in range(count)]
            if sorted(reply) != sorted(wanted):
                raise InputError(
                    f"got probabilities for {', '.join(map(str, reply)) or 'nothing'} instead of the "
                    f"levels 0 to {count - 1}"
                )
            reply = [reply[level] for level in wanted]
        if not isinstance(reply, Sequence) or isinstance(reply, str) or len(reply) != count:
            raise InputError(f"expected probabilities for {count} levels, got {str(reply)[:80]!r}")
        return Distribution(reply)


def is_probability(value: object) -> TypeGuard[float]:
    """Whether a value is a number from 0 to 1; NaN and booleans are not.

    Example:
        >>> [is_probability(value) for value in (0, 0.5, True, float("nan"), "1", None)]
        [True, True, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


class Distribution(tuple[float, ...]):
    """A probability for each level, checked: finite, from 0 to 1, summing to about 1."""

    __slots__ = ()

    def __new__(cls, probabilities: Sequence[float]) -> Distribution:
        for level, value in enumerate(probabilities):
            if not is_probability(value):
                raise InputError(f"level {level} has the probability {value!r}")
        if not abs(math.fsum(probabilities) - 1) <= SLACK:
            raise InputError(f"the probabilities sum to {math.fsum(probabilities):.4g}, not to 1")
        return super().__new__(cls, probabilities)

    @property
    def level(self) -> int:
        """The most likely level; the lowest of equally likely ones.

        Example:
            >>> Distribution((0.25, 0.375, 0.375)).level
            1
        """
        return self.index(max(self))

    @property
    def expected(self) -> float:
        """The expected level.

        Example:
            >>> Distribution((0.25, 0.25, 0.5)).expected
            1.25
        """
        return math.fsum(level * p for level, p in enumerate(self)) / math.fsum(self)

    def below(self, level: int) -> float:
        """Return the probability of all lower levels.

        Example:
            >>> Distribution((0.25, 0.25, 0.5)).below(2)
            0.5
        """
        return math.fsum(self[:level]) / math.fsum(self)


class CachedJudge:
    """A judge that asks another one only what is not in a folder of verdicts yet, so that a repeated run costs nothing.

    Each verdict is a sealed file; one that cannot be read, was altered or answers another question is asked for again.
    The judge is part of the question, so that two judges never share a verdict.
    """

    def __init__(self, judge: Judge, folder: str | Path) -> None:
        self._judge = judge
        self._folder = Path(folder)
        self._in_progress: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """Name the judge behind the cache: the cache itself changes no verdict."""
        return self._judge.describe()

    def close(self) -> None:
        close_judge(self._judge)

    def ask(self, question: Request | ScaleQuestion) -> Any:
        """Return the stored verdict, or ask and store the reply."""
        asked = {"judge": self._judge.describe(), **question.to_json()}
        key = sha256_json(asked)
        path = self._folder / key[:2] / f"{key}.json"
        with self._lock:
            own = self._in_progress.setdefault(key, threading.Lock())
        # Of two equal questions at the same time, the second waits for the first one's verdict.
        with own:
            with suppress(ArtifactError, InputError):
                stored = read_sealed(path)
                if stored.get("question") == asked:
                    return question.parse(stored.get("reply"))
            verdict = question.parse(self._judge.ask(question))
            write_sealed(path, {"question": asked, "reply": verdict})
            return verdict
