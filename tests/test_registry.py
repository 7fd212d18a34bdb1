"""Lazy names: imported when asked for, joined by plug-ins, never overwritten."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest

from reweigh import registry
from reweigh.errors import InputError, UnknownNameError
from reweigh.registry import Registry


def make(group="reweigh.nothing"):
    return Registry[object](
        "shape", {"decimal": "colorsys:rgb_to_hsv", "broken": "no_such_module:x"}, group=group
    )


def test_entries_are_imported_when_asked_for():
    sys.modules.pop("colorsys", None)
    shapes = make()
    assert list(shapes) == ["decimal", "broken"]
    assert "decimal" in shapes
    assert "colorsys" not in sys.modules
    import_of_it = shapes["decimal"]
    assert "colorsys" in sys.modules
    assert shapes["decimal"] is import_of_it


def test_a_broken_entry_fails_only_when_used():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        make()["broken"]


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean decimal") as caught:
        make()["decimel"]
    assert caught.value.hint is not None


def test_adding_under_a_new_name_only():
    shapes = make()
    shapes.add("mine", 7)
    assert shapes["mine"] == 7
    assert list(shapes) == ["decimal", "broken", "mine"]
    for name in ("mine", "decimal"):
        with pytest.raises(InputError, match=f"'{name}'"):
            shapes.add(name, 8)


def test_plug_ins_are_found_in_their_group_and_built_in_names_win(monkeypatch):
    found = [
        EntryPoint("plugged", "colorsys:hsv_to_rgb", "reweigh.shapes"),
        EntryPoint("decimal", "colorsys:hsv_to_rgb", "reweigh.shapes"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: found if group == "reweigh.shapes" else [])
    import colorsys

    shapes = make("reweigh.shapes")
    assert list(shapes) == ["decimal", "broken", "plugged"]
    assert shapes["plugged"] is colorsys.hsv_to_rgb
    assert shapes["decimal"] is colorsys.rgb_to_hsv
    with pytest.raises(InputError):
        shapes.add("plugged", 1)
