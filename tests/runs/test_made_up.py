"""Objects that a run makes up are counted by name, the most frequent first."""

from __future__ import annotations

import pytest

from reweigh.benchmarks.base import Item
from reweigh.benchmarks.world import score_scene
from reweigh.errors import InputError
from reweigh.runs.made_up import MadeUp, made_up
from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import scene


def test_objects_are_counted_by_what_is_meant():
    shown = scene("tuning", 0)
    there = next(name for name in CATALOGUE if name in shown.objects)
    lamp, cake = [name for name in CATALOGUE if name not in shown.objects][:2]
    items = [
        score_scene(shown, f"A {cake} and a {there}, and a {cake} again."),
        score_scene(shown, f"A {lamp}, a {there} and a {cake}."),
    ]
    assert made_up(items) == [MadeUp(cake, 3, 3), MadeUp(lamp, 1, 1)]
    assert made_up([score_scene(shown, f"A {there}.")]) == []
    with pytest.raises(InputError, match="names no objects"):
        made_up([Item(id=1, image="x.png", counts={}, details={"correct": True})])
