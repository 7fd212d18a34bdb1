"""The sentence that ends scripts/test."""

from __future__ import annotations

from last_line import duration, sentence


def test_the_sentence_tells_passes_from_failures():
    assert sentence(5012, 0, 7, 280) == "All 5,012 tests passed (7 skipped: reasons above) in 4 min 40 s."
    assert sentence(3, 0, 0, 2.4) == "All 3 tests passed in 2 s."
    assert sentence(5010, 2, 7, 280).startswith("2 of 5,012 tests failed in 4 min 40 s.")
    assert "passed" not in sentence(0, 0, 4, 1)


def test_durations_are_rounded_to_seconds():
    assert [duration(seconds) for seconds in (0.2, 59.7, 61, 3600)] == [
        "0 s",
        "1 min 0 s",
        "1 min 1 s",
        "60 min 0 s",
    ]
