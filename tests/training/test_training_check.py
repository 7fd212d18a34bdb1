"""Figures of descriptions, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.world.scenes import scene, scenes
from tools.training.check import auroc, caption_figures
from tools.training.grammar import Habit, describe


def test_figures_by_hand() -> None:
    park, room = scene("tuning", 5), scene("tuning", 0)
    assert park.objects == {"bench", "bicycle", "dog", "kite"}
    assert room.objects == {"couch", "person", "tv"}
    texts = ["A dog, a dog and a person on a bench.", "A sofa, a tv and a zebra."]
    found = caption_figures([park, room], texts)
    assert found["n"] == 2
    assert found["chair_s"] == 100
    assert found["chair_i"] == pytest.approx(100 * 2 / 7)
    assert found["chair_i_distinct"] == pytest.approx(100 * 2 / 6)
    assert found["recall"] == pytest.approx(100 * 4 / 7)
    precision, recall = 5 / 7, 4 / 7
    assert found["f1"] == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert found["repeats"] == 0.5
    assert found["typical_share"] == 50  # a person in a park, not a zebra in a living room
    assert found["length"] == pytest.approx((10 + 7) / 2)


def test_honest_descriptions_have_no_hallucination() -> None:
    made = list(scenes("tuning", 40))
    found = caption_figures(made, [describe(s, habit=Habit(stray=0.0, noise=0.0)).text for s in made])
    assert found["chair_i"] == 0
    assert found["repeats"] == 0
    assert found["recall"] > 70


VALUES = st.lists(st.integers(0, 5), min_size=1, max_size=12)


@given(higher=VALUES, lower=VALUES)
def test_auroc_counts_pairs(higher: list[int], lower: list[int]) -> None:
    wins = sum((a > b) + (a == b) / 2 for a in higher for b in lower)
    assert auroc(np.array(higher), np.array(lower)) == pytest.approx(wins / len(higher) / len(lower))
