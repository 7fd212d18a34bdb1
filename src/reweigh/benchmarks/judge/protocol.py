"""What a judge is asked and answers: text for a chat request, or probabilities over the levels of a closed question.

The rating of a closed question is the most likely level, the lower one of equals; the expected rating is
sum(level * p) / sum(p). ``ask_all`` asks several questions at once.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from reweigh.errors import InputError, ReweighError
from reweigh.text import replace_surrogates

Message: TypeAlias = Mapping[str, str]
T = TypeVar("T")


class JudgeError(ReweighError):
    """The judge did not reply, and asking again would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a judge; ``sample`` distinguishes repeated draws of the same question."""

    messages: tuple[Message, ...]
    temperature: float = 0.0
    max_tokens: int | None = None
    sample: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain JSON."""
        return {**asdict(self), "messages": [dict(message) for message in self.messages]}


def user(text: str, *, temperature: float = 0.0, max_tokens: int | None = None, sample: int = 0) -> Request:
    """Make a request of a single user message, as both benchmarks send it."""
    message = {"role": "user", "content": replace_surrogates(text)}
    return Request(messages=(message,), temperature=temperature, max_tokens=max_tokens, sample=sample)


@runtime_checkable
class Judge(Protocol):
    """Answers a request with text; ``describe`` says who answers, for records and cache keys."""

    def ask(self, request: Request) -> str:
        """Return the reply, or raise :class:`JudgeError`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Name model and address, without any secret."""
        ...


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
        raise InputError(f"a concurrency of {concurrency!r} is not a whole number of 1 or more")
    futures: list[Future[T]] = [Future() for _ in tasks]
    waiting = deque(zip(tasks, futures, strict=True))

    def work() -> None:
        while True:
            try:
                task, future = waiting.popleft()
            except IndexError:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = task()
                if advance is not None:
                    advance()
                future.set_result(result)
            except BaseException as error:
                future.set_exception(error)

    for number in range(min(concurrency, len(tasks))):
        # An executor's threads would keep a stopped command alive until the last question times out.
        threading.Thread(target=work, name=f"judge-{number}", daemon=True).start()
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            if future in done and (error := future.exception()) is not None:
                raise error
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


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


def is_probability(value: object) -> TypeGuard[float]:
    """Whether a value is a number from 0 to 1; NaN and booleans are not.

    Example:
        >>> [is_probability(value) for value in (0, 0.5, True, float("nan"), "1", None)]
        [True, True, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


@dataclass(frozen=True, slots=True)
class Distribution:
    """A probability for each level, checked: finite, from 0 to 1, summing to about 1."""

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        for level, value in enumerate(self.probabilities):
            if not is_probability(value):
                raise InputError(f"level {level} has the probability {value!r}")
        if not abs(self._total - 1) <= SLACK:
            raise InputError(f"the probabilities sum to {self._total:.4g}, not to 1")

    @classmethod
    def parse(cls, found: Any, levels: int) -> Distribution:
        """Read probabilities by level, ``{"0": p, "1": p, ...}``, or in order; all levels and no other."""
        if isinstance(found, Mapping):
            wanted = [str(level) for level in range(levels)]
            if sorted(found) != sorted(wanted):
                raise InputError(
                    f"there are probabilities for {', '.join(map(str, found)) or 'nothing'}, not for the "
                    f"levels 0 to {levels - 1}"
                )
            found = [found[level] for level in wanted]
        if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != levels:
            raise InputError(f"expected probabilities for {levels} levels, got {str(found)[:80]!r}")
        return cls(tuple(found))

    @property
    def _total(self) -> float:
        return math.fsum(self.probabilities)

    @property
    def level(self) -> int:
        """The most likely level; the lowest of equally likely ones.

        Example:
            >>> Distribution((0.25, 0.375, 0.375)).level
            1
        """
        return self.probabilities.index(max(self.probabilities))

    @property
    def expected(self) -> float:
        """The expected level.

        Example:
            >>> Distribution((0.25, 0.25, 0.5)).expected
            1.25
        """
        return math.fsum(level * p for level, p in enumerate(self.probabilities)) / self._total

    def below(self, level: int) -> float:
        """Return the probability of all lower levels.

        Example:
            >>> Distribution((0.25, 0.25, 0.5)).below(2)
            0.5
        """
        return math.fsum(self.probabilities[:level]) / self._total


@runtime_checkable
class Rater(Protocol):
    """Answers a closed question with a distribution; ``describe`` says who answers, for records and cache keys."""

    def rate(self, question: ScaleQuestion) -> Distribution:
        """Return the distribution, or raise :class:`JudgeError`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Name model and address, without any secret."""
        ...
