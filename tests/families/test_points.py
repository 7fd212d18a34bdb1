"""The paper's operating points, and what models beside them take over."""

from __future__ import annotations

import pytest

from reweigh.families.points import PUBLISHED, REUSED, nearest_point, point_in_use
from reweigh.tables.table import ReferenceTable
from reweigh.world import table_path


def test_every_published_model_gets_its_own_point():
    for point in PUBLISHED:
        found = nearest_point(point.family, point.blocks)
        assert (found.layer, found.beta) == (point.layer, point.beta)
        assert point.model in found.source


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


@pytest.mark.parametrize(
    ("family", "blocks", "layer", "said"),
    [
        (
            "instructblip",
            4,
            1,
            "layer 1, beta 0.5 (taken from InstructBLIP-7B, at the same distance from the last block)",
        ),
        ("instructblip", 32, 1, "layer 1, beta 0.5 (published for InstructBLIP-7B; its layer would be 29)"),
        (
            "llava",
            5,
            3,
            "layer 3, beta 1.1 (taken from LLaVA-1.5-7B, at the same distance from the last block; its layer would be 2)",
        ),
        ("llava", 5, 2, "layer 2, beta 3.5 (tuned on 300 records of world, recorded with the table)"),
        (
            "smolvlm",
            5,
            1,
            "layer 1, beta 1.1 (the paper's most common beta, not chosen for this model; `reweigh tune` chooses one)",
        ),
    ],
)
def test_the_point_in_use_says_who_chose_it(family, blocks, layer, said):
    table = ReferenceTable.from_pretrained(table_path(), layer=layer)
    assert str(point_in_use(family, blocks, table, None)) == said
