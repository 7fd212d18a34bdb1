"""Fair timing on a shared machine: variants take turns, and a ratio is formed within each round.

CPU time of this process, so that waiting for a core does not count. A round runs every variant once, in an order
that rotates; medians and their 95% intervals are over rounds. Every run is kept as it ends, so that stopping loses at
most the current one; figures use whole rounds only.
"""

from __future__ import annotations

import functools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import append_jsonl, naming, read_jsonl
from reweigh.lab.estimate import Estimate
from reweigh.progress import bar

Variant = Callable[[], object]
Round = dict[str, dict[str, float]]
"""What one round measured: for each variant its seconds, and what else the run noted."""

KEPT = "runs.jsonl"


class Reading(dict[str, float]):
    """What a variant may return: further quantities of the run that is timed, such as its peak memory."""


@dataclass(frozen=True)
class Timing:
    """Seconds of CPU time, one per round, and what else the runs noted."""

    seconds: tuple[float, ...]
    notes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def per(self, count: float) -> Estimate:
        """Return nanoseconds per unit of work."""
        return median_estimate([1e9 * second / count for second in self.seconds])

    def over(self, other: Timing) -> Estimate:
        """Return the ratio to the other's cost, formed round by round."""
        return median_estimate([own / its for own, its in zip(self.seconds, other.seconds, strict=True)])


class Rounds:
    """The number of rounds, and the measurements so far, kept in ``folder`` so that a later call resumes.

    Args:
        count: Rounds of each comparison; six or more give 95% intervals.
        folder: Where runs are kept; ``None`` keeps them in memory only.
        setting: What must be the same for rounds to be comparable: the machine, versions, threads.
    """

    def __init__(
        self,
        count: int,
        folder: Path | None = None,
        setting: Mapping[str, Any] | None = None,
        *,
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        if count < 1:
            raise InputError(f"the number of rounds cannot be {count}", hint="give 1 or more")
        self.count = count
        self.stopped = False
        self._path = None if folder is None else folder / KEPT
        if folder is not None:
            with naming(folder):
                folder.mkdir(parents=True, exist_ok=True)
        self._setting = dict(setting or {})
        self._clock = clock

    def compare(
        self,
        what: str,
        variants: Mapping[str, Variant],
        *,
        warm: int = 1,
        least: float = 0.0,
        count: int = 0,
        clock: Callable[[], float] | None = None,
    ) -> dict[str, Timing]:
        """Time variants in turns, after ``warm`` untimed rounds; a quick one is repeated until ``least`` seconds pass.

        If the user interrupts, return the complete rounds and refuse further comparisons.

        Args:
            what: Names the comparison; a later run finds its rounds by it.
            count: More rounds than usual, for cheap variants.
            clock: A clock other than the usual one.
        """
        if self.stopped:
            raise KeyboardInterrupt
        names = list(variants)
        rounds = self._kept(what, names)
        wanted = max(self.count, count)
        done = sum(map(len, rounds))
        try:
            with bar(what, total=wanted * len(names), done=done, unit="run") as progress:
                for name in names * warm * (done < wanted * len(names)):
                    variants[name]()
                for turn in range(wanted):
                    if turn == len(rounds):
                        rounds.append({})
                    start = turn % len(names)
                    for name in names[start:] + names[:start]:
                        if name not in rounds[turn]:
                            progress.set_postfix_str(name)
                            run = _time(variants[name], clock or self._clock, least)
                            rounds[turn][name] = run
                            self._keep(what, names, turn, name, run)
                            progress.update()
        except KeyboardInterrupt:
            self.stopped = True
        whole = [taken for taken in rounds[:wanted] if len(taken) == len(names)]
        if not whole:
            raise KeyboardInterrupt
        return {name: _timing([taken[name] for taken in whole]) for name in names}

    def _kept(self, what: str, names: Sequence[str]) -> list[Round]:
        """Return what an earlier call measured of the same comparison in the same setting, by rounds."""
        rounds: defaultdict[int, Round] = defaultdict(dict)
        if self._path is not None and self._path.exists():
            for row in read_jsonl(self._path):
                if row.get("of") == self._comparison(what, names):
                    rounds[row["round"]][row["variant"]] = row["run"]
        return [rounds[turn] for turn in sorted(rounds)]

    def _keep(self, what: str, names: Sequence[str], turn: int, name: str, run: dict[str, float]) -> None:
        if self._path is not None:
            of = self._comparison(what, names)
            row = {"of": of, "round": turn, "variant": name, "run": run}
            append_jsonl(self._path, [row])

    def _comparison(self, what: str, names: Sequence[str]) -> dict[str, Any]:
        return {"what": what, "variants": list(names), "setting": self._setting}


def _time(variant: Variant, clock: Callable[[], float], least: float) -> dict[str, float]:
    begin = clock()
    runs = 0
    while True:
        notes = variant()
        runs += 1
        passed = clock() - begin
        if passed >= least:
            notes = notes if isinstance(notes, Reading) else {}
            return {"seconds": max(passed, 1e-9) / runs, **notes}


def _timing(runs: Sequence[Mapping[str, float]]) -> Timing:
    columns = {name: tuple(run[name] for run in runs) for name in runs[0]}
    return Timing(columns.pop("seconds"), columns)


def median_estimate(values: Sequence[float]) -> Estimate:
    """Return the median with its exact 95% interval from order statistics; the whole range if there are fewer than six."""
    ordered = sorted(values)
    n = len(ordered)
    k = 0
    while k + 1 <= n // 2 and 2 * sum(math.comb(n, i) for i in range(k + 1)) <= 0.05 * 2**n:
        k += 1
    k = max(k, 1)
    return Estimate(median(ordered), ordered[k - 1], ordered[n - k])


Target = tuple[Any, str]
"""A class, module or object, and the name of a function there."""


class OwnClock:
    """Adds up the time of the functions it follows; one that calls another counts once.

    Reading the clock takes some microseconds itself: two readings in a row tell how many, and they are subtracted.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._runs = False

    def take(self) -> float:
        """Return the seconds since the last call."""
        taken, self.seconds = self.seconds, 0.0
        return taken

    @contextmanager
    def following(self, targets: Sequence[Target]) -> Iterator[None]:
        """Follow functions by name, and restore them afterwards."""
        kept = [(owner, name, getattr(owner, name)) for owner, name in targets]
        for owner, name, original in kept:
            setattr(owner, name, self._followed(original))
        try:
            yield
        finally:
            for owner, name, original in kept:
                setattr(owner, name, original)

    def _followed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def followed(*args: Any, **kwargs: Any) -> Any:
            if self._runs:
                return original(*args, **kwargs)
            self._runs = True
            before = self._clock()
            begin = self._clock()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds += self._clock() - begin - (begin - before)
                self._runs = False

        return followed
