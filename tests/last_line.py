"""``--last-line``: end a run with one sentence, below the closing line of pytest."""

from __future__ import annotations

import time

import pytest


def duration(seconds: float) -> str:
    """``4 min 40 s``, or ``40 s`` below one minute."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def sentence(passed: int, failed: int, skipped: int, seconds: float) -> str:
    """What a newcomer wants to know of a run. Errors of fixtures count as failures."""
    took = f"in {duration(seconds)}"
    if failed:
        return f"{failed:,} of {passed + failed:,} tests failed {took}. Each is listed above under FAILED or ERROR."
    if not passed:
        return f"No test ran {took}."
    but = f" ({skipped:,} skipped: reasons above)" if skipped else ""
    return f"All {passed:,} tests passed{but} {took}."


class LastLine:
    """Reports when everything else was printed. ``xfailed`` is a pass, ``xpassed`` is what strict marks forbid."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.start = time.monotonic()

    def pytest_unconfigure(self) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return
        count = {name: len(found) for name, found in reporter.stats.items()}
        failed = count.get("failed", 0) + count.get("error", 0)
        passed = count.get("passed", 0) + count.get("xfailed", 0)
        line = sentence(passed, failed, count.get("skipped", 0), time.monotonic() - self.start)
        reporter.write_line(line, green=not failed and bool(passed), red=bool(failed))
