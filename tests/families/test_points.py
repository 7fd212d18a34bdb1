"""The paper's operating points, and what models beside them take over."""

from __future__ import annotations

import json
import re

import pytest

from reweigh.families.points import PUBLISHED, REUSED, nearest_point


def test_every_published_model_gets_its_own_point():
    for point in PUBLISHED:
        found = nearest_point(point.family, point.blocks)
        assert (found.layer, found.beta) == (point.layer, point.beta)
        assert found.source == f"published for {point.model}"


def test_reused_points_are_what_their_smaller_model_gives():
    """The paper's rule for 13B and 32B: the 7B beta, as far from the last block."""
    for point in PUBLISHED:
        if point.source == REUSED:
            small = next(one for one in PUBLISHED if one.family == point.family and one.source != REUSED)
            assert point.beta == small.beta
            assert point.blocks - point.layer == small.blocks - small.layer


def test_another_size_takes_over_the_nearest():
    found = nearest_point("gemma3", 34)  # the 4B model, nearer to 12B than to 27B
    assert (found.layer, found.beta) == (31, 1.0)
    assert "Gemma-3-12B" in found.source


def test_an_unknown_family_or_too_few_blocks_have_none():
    assert nearest_point("smolvlm", 24) is None
    assert nearest_point("llava", 2) is None


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_lists_them(capsys, form):
    from reweigh.cli.points import points

    points(json=form == "json")
    printed = capsys.readouterr().out
    if form == "json":
        assert [(row["model"], row["layer"], row["beta"]) for row in json.loads(printed)] == [
            (point.model, point.layer, point.beta) for point in PUBLISHED
        ]
    else:
        assert re.search(r"InstructBLIP-7B\s+instructblip\s+32\s+29\s+0\.5", printed)
