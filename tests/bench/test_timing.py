"""Timing without a clock: turns, ratios within rounds, intervals."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from tools.bench.timing import KEPT, Reading, Rounds, Timing, Variant, median_estimate


def test_variants_take_turns_and_the_order_rotates() -> None:
    calls: list[str] = []
    ticks = itertools.count()
    timings = Rounds(3, clock=lambda: float(next(ticks))).compare(
        "letters", {name: (lambda name=name: calls.append(name)) for name in "abc"}
    )
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"  # one warm round, then three
    assert all(timing.seconds == (1.0, 1.0, 1.0) for timing in timings.values())


def test_a_quick_variant_is_repeated_and_its_time_divided() -> None:
    now = [0.0]

    def work() -> None:
        now[0] += 0.25

    timing = Rounds(2, clock=lambda: now[0]).compare("work", {"a": work}, least=1.0)["a"]
    assert timing.seconds == (0.25, 0.25)


def test_ratios_are_formed_within_rounds() -> None:
    slow_then_fast, half = Timing((4.0, 1.0, 2.0)), Timing((2.0, 0.5, 1.0))
    assert half.over(slow_then_fast).parts == (0.5, 0.5, 0.5)
    assert half.per(2).value == 0.5e9


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_the_interval_holds_the_median_and_never_more_than_the_range(values: list[float]) -> None:
    estimate = median_estimate(values)
    assert min(values) <= estimate.low <= estimate.value <= estimate.high <= max(values)


def test_the_interval_is_the_exact_one() -> None:
    for n in range(6, 30):
        low = sorted(range(n)).index(median_estimate(list(range(n))).low)  # type: ignore[arg-type]
        covered = 1 - 2 * sum(math.comb(n, i) for i in range(low + 1)) / 2**n
        wider = 1 - 2 * sum(math.comb(n, i) for i in range(low + 2)) / 2**n
        assert covered >= 0.95 > wider
    assert median_estimate([3.0, 1.0, 2.0]).parts == (2.0, 1.0, 3.0)


def test_no_rounds_are_refused() -> None:
    with pytest.raises(InputError, match="rounds"):
        Rounds(0)


def test_what_is_cheap_may_be_measured_more_often() -> None:
    assert len(Rounds(2).compare("cheap", {"a": lambda: None}, count=5)["a"].seconds) == 5
    assert len(Rounds(7).compare("cheap", {"a": lambda: None}, count=5)["a"].seconds) == 7


def test_a_run_tells_more_than_its_time() -> None:
    timing = Rounds(2).compare("notes", {"a": lambda: Reading(memory=3.0), "b": lambda: 4})
    assert timing["a"].notes == {"memory": (3.0, 3.0)}
    assert timing["b"].notes == {}


class Runs:
    """Variants that count their runs and interrupt at one of them."""

    def __init__(self, interrupt_at: int = 0) -> None:
        self.calls: list[str] = []
        self.interrupt_at = interrupt_at

    def variants(self, names: str = "ab") -> dict[str, Variant]:
        return {name: (lambda name=name: self.run(name)) for name in names}  # type: ignore[misc]

    def run(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) == self.interrupt_at:
            raise KeyboardInterrupt


def test_an_interrupted_comparison_gives_its_whole_rounds_and_ends_the_measurement() -> None:
    runs, rounds = Runs(interrupt_at=6), Rounds(5)
    timings = rounds.compare("first", runs.variants(), warm=0)
    assert {name: len(timing.seconds) for name, timing in timings.items()} == {"a": 2, "b": 2}
    assert rounds.stopped
    with pytest.raises(KeyboardInterrupt):
        rounds.compare("second", Runs().variants())


def test_an_interrupt_before_the_first_whole_round_passes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        Rounds(5).compare("first", Runs(interrupt_at=2).variants(), warm=0)


def test_a_stopped_comparison_resumes_where_it_stopped(tmp_path: Path) -> None:
    ticks = itertools.count()
    first = Rounds(4, tmp_path, {"threads": 1}, clock=lambda: float(next(ticks)))
    before = first.compare("work", Runs(interrupt_at=8).variants(), warm=1)  # amid the third round, a done
    assert before["a"].seconds == (1.0, 1.0)
    again = Runs()
    slower = itertools.count(step=2)
    rounds = Rounds(4, tmp_path, {"threads": 1}, clock=lambda: float(next(slower)))
    after = rounds.compare("work", again.variants(), warm=1)
    assert after["a"].seconds == (1.0, 1.0, 1.0, 2.0)
    assert after["b"].seconds == (1.0, 1.0, 2.0, 2.0)
    assert "".join(again.calls) == "ab" + "b" + "ba"  # warm, what was missing, and the last round
    third = Runs()
    assert Rounds(3, tmp_path, {"threads": 1}).compare("work", third.variants())["b"].seconds == (
        1.0,
        1.0,
        2.0,
    )
    assert third.calls == []


def test_a_run_before_the_first_whole_round_is_kept(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Rounds(1, tmp_path).compare("work", Runs(interrupt_at=2).variants(), warm=0)
    runs = Runs()
    Rounds(1, tmp_path).compare("work", runs.variants(), warm=0)
    assert runs.calls == ["b"]


@pytest.mark.parametrize(
    ("what", "names", "threads"), [("other", "ab", 1), ("work", "abc", 1), ("work", "ab", 2)]
)
def test_rounds_of_something_else_are_not_taken(tmp_path: Path, what: str, names: str, threads: int) -> None:
    Rounds(2, tmp_path, {"threads": 1}).compare("work", Runs().variants(), warm=0)
    runs = Runs()
    Rounds(2, tmp_path, {"threads": threads}).compare(what, runs.variants(names), warm=0)
    assert len(runs.calls) == 2 * len(names)


def test_a_line_cut_by_a_kill_is_measured_again(tmp_path: Path) -> None:
    Rounds(2, tmp_path).compare("work", Runs().variants(), warm=0)
    kept = tmp_path / KEPT
    kept.write_bytes(kept.read_bytes()[:-5])
    runs = Runs()
    Rounds(2, tmp_path).compare("work", runs.variants(), warm=0)
    assert "".join(runs.calls) == "a"  # the last of the second round, whose order is b, a
    assert len(kept.read_text().splitlines()) == 4
