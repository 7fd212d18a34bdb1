"""Objects that a run hallucinates are counted by name, the most frequent first."""

from __future__ import annotations

import pytest

from reweigh.errors import InputError
from reweigh.lab.runs.diff import hallucinated_objects
from reweigh.lab.tasks.base import Item
from reweigh.lab.tasks.world import score_scene
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
    assert hallucinated_objects(items) == [(cake, 3), (lamp, 1)]
    assert hallucinated_objects([score_scene(shown, f"A {there}.")]) == []
    with pytest.raises(InputError, match="objects"):
        hallucinated_objects([Item(id=1, image="x.png", counts={}, details={"correct": True})])
