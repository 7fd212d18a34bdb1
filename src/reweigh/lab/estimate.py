"""A number with its 95% interval: the one shape in which results travel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reweigh.errors import ReweighError


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval, or no value; the reason says why there is none, or why nothing follows from it.

    Parts that are not finite become None, so that every estimate can be written as JSON.

    Examples:
        >>> Estimate(9.4, 8.4, 10.5).bounded
        True
        >>> Estimate(None, reason="its denominator is zero").value is None
        True
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            part = getattr(self, name)
            if part is not None and not math.isfinite(part):
                object.__setattr__(self, name, None)

    @property
    def number(self) -> float:
        """Return the value, or raise if there is none."""
        if self.value is None:
            raise ReweighError(f"there is no value ({self.reason or 'no reason was given'})")
        return self.value

    @property
    def bounded(self) -> bool:
        """Whether both ends of the interval are known."""
        return self.low is not None and self.high is not None

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval of a difference excludes zero, and enough is behind it."""
        return (
            self.reason is None
            and self.low is not None
            and self.high is not None
            and not self.low <= 0 <= self.high
        )

    def map(self, function: Callable[[float], float]) -> Estimate:
        """Return the estimate of an increasing function of the number, such as another unit.

        Examples:
            >>> Estimate(0.5, 0.4, 0.6).map(lambda share: 100 * share)
            Estimate(value=50.0, low=40.0, high=60.0, reason=None)
        """
        value, low, high = (None if part is None else float(function(part)) for part in self.parts)
        return Estimate(value, low, high, self.reason)

    @property
    def parts(self) -> tuple[float | None, float | None, float | None]:
        """Value, low and high."""
        return self.value, self.low, self.high

    def text(self, digits: int = 2, *, signed: bool = False, unit: str = "") -> str:
        """Return the value with its interval, as text.

        Examples:
            >>> Estimate(1.234, 0.5, 2.0).text(unit=" points")
            '1.23 points [0.50, 2.00]'
            >>> Estimate(-7.7, -9.1, -6.2).text(1, signed=True)
            '-7.7 [-9.1, -6.2]'
        """
        if self.value is None:
            return "undefined"
        form = f"{'+' if signed else ''}z.{digits}f"
        ends = f" [{self.low:{form}}, {self.high:{form}}]" if self.bounded else ""
        return f"{self.value:{form}}{unit}{ends}"

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as plain JSON; the reason only where there is one."""
        row: dict[str, Any] = {"value": self.value, "low": self.low, "high": self.high}
        return row | ({"reason": self.reason} if self.reason else {})
