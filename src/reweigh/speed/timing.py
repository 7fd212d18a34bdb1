"""Fair timing on a machine that others use too: variants take turns, and a ratio is formed within each round.

CPU time of this process, so that waiting for a core does not count. A round runs every variant once, in an order
that rotates; medians and their 95% intervals are over rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from reweigh.errors import InputError
from reweigh.report.tables import Estimate

Variant = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds of CPU time, one per round."""

    seconds: tuple[float, ...]

    def per(self, count: float) -> Estimate:
        """Nanoseconds per unit of work."""
        return middle([1e9 * second / count for second in self.seconds])

    def over(self, other: Timing) -> Estimate:
        """How many times the other's cost, round by round."""
        return middle([own / its for own, its in zip(self.seconds, other.seconds, strict=True)])


def interleave(
    variants: Mapping[str, Variant],
    rounds: int,
    *,
    clock: Callable[[], float] = time.process_time,
    warm: int = 1,
    least: float = 0.0,
) -> dict[str, Timing]:
    """Time variants in turns, after ``warm`` untimed rounds; a quick one is repeated until ``least`` seconds pass."""
    if rounds < 1:
        raise InputError(f"{rounds} rounds measure nothing", hint="give 1 or more")
    names = list(variants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names * warm:
        variants[name]()
    for turn in range(rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            seconds[name].append(_time(variants[name], clock, least))
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def _time(variant: Variant, clock: Callable[[], float], least: float) -> float:
    begin = clock()
    runs = 0
    while True:
        variant()
        runs += 1
        passed = clock() - begin
        if passed >= least:
            return max(passed, 1e-9) / runs


def middle(values: Sequence[float]) -> Estimate:
    """Median with its exact 95% interval from order statistics; all of the range where fewer than six are known."""
    ordered = sorted(values)
    n = len(ordered)
    k = 0
    while k + 1 <= n // 2 and 2 * sum(math.comb(n, i) for i in range(k + 1)) <= 0.05 * 2**n:
        k += 1
    k = max(k, 1)
    return Estimate(median(ordered), ordered[k - 1], ordered[n - k])
