"""A closed question and its answer: ordered levels, and a probability for each.

The rating is the most likely level, the lower one of equals; the expected rating is sum(level * p) / sum(p).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, runtime_checkable

from reweigh.errors import InputError
from reweigh.text import replace_surrogates

MOST_LEVELS = 26
SLACK = 0.01
"""How far probabilities may sum from 1: some servers round them to two or three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleQuestion:
    """One question with ordered levels as its only answers.

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
        """The most likely level; of equally likely ones the lowest.

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
        """The probability of a lower level than this one.

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
