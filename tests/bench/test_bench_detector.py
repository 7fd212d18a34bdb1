"""The detector's figures against brute force, and the command on one scene."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tools.bench.detector import READINGS, Judged, app, area, figures

SCORES = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@given(low=SCORES, high=SCORES)
def test_the_area_counts_every_pair(low, high):
    pairs = [(a < b) + (a == b) / 2 for a in low for b in high]
    assert area(np.array(low, float), np.array(high, float)) == pytest.approx(sum(pairs) / len(pairs))


def test_each_reading_marks_below_its_own_threshold():
    judged = [
        Judged(True, (0.7, -0.49, 0.25)),
        Judged(True, (0.69, -0.5, 0.24)),
        Judged(False, (0.1, -1.0, 0.0)),
        Judged(False, (0.9, 0.0, 0.9)),
    ]
    for row in figures("pairs", judged):
        assert (row["detected"], row["false_alarms"]) == (50, 50), row["reading"]
    assert figures("mentions", [])[0]["auroc"] is None


def test_the_command_judges_a_scene():
    rows = json.loads(CliRunner().invoke(app, ["--scenes", "1", "--json"]).stdout)
    assert [(row["on"], row["reading"]) for row in rows] == [
        (kind, reading.name) for kind in ("pairs", "mentions") for reading in READINGS
    ]
    assert rows[0]["auroc"] > 0.8
    assert rows[0]["present"] >= 3
