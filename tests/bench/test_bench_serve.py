"""The server's figures, from a short run: what is compared with what, and memory that is read."""

from __future__ import annotations

import pytest

from tools.bench.serve import serve_figures
from tools.bench.timing import Rounds


@pytest.mark.slow
def test_the_server_is_timed_through_http() -> None:
    figures = list(serve_figures(Rounds(1), requests=8, at_once=2))
    assert [figure.variant for figure in figures] == [
        "one after the other",
        "2 at once",
        "evidence measured",
        "evidence kept",
        "2 at once",
    ]
    together, kept, memory = figures[1], figures[3], figures[4]
    assert together.ratio is not None
    assert together.against == "one after the other"
    assert together.goal == pytest.approx(1 / 3)
    assert kept.ratio is not None
    assert memory.memory is None or abs(memory.memory) < 500
