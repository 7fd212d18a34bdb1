"""One record makes a family: registered at run time or by an entry point, it works everywhere at once."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import pytest
import torch

from checkpoints import load, picture
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.catalogue import BUILT_IN, FAMILIES, Family, family_of
from reweigh.families.positions import layout
from reweigh.families.prompts import build_inputs, render
from reweigh.method.grids import View


def column_of_patches(config, inputs, runs):
    """Pictures of one column, each with a newline at its end."""
    return [(run.token, (View(run.length - 1, 1, end=1),)) for row in runs for run in row]


MADE_UP = Family(
    "made_up",
    pictures=column_of_patches,
    has_controls=True,
    causal=True,
    nested_images=True,
    bare_prompt=True,
)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(FAMILIES, "_loaded", dict(FAMILIES._loaded))
    FAMILIES.add("made_up", MADE_UP)


@pytest.fixture
def made_up(checkpoint):
    """A checkpoint of LLaVA that says it is of another family."""
    model, processor = load(checkpoint("llava", bare=True))
    vars(model.config)["model_type"] = "made_up"
    return model, processor


def test_a_new_family_needs_its_record_only(registered, made_up, monkeypatch):
    model, processor = made_up
    anatomy = find_anatomy(model)
    assert anatomy.family is MADE_UP
    assert anatomy.is_causal
    token = anatomy.image_tokens[0]
    row = layout(anatomy.family, model.config, torch.tensor([[1, token, token, token, 2]]), {})[0]
    assert [(column, patch.row, patch.rows) for column, patch in row] == [(1, 0, 2), (2, 1, 2)]
    assert render(model, processor, "Hi", True, None) == "Hi"
    given = {}

    def call(**arguments):
        given.update(arguments)
        return processor(text=["<image> Hi"], images=arguments["images"][0], return_tensors="pt")

    build_inputs(model, call, [picture(1)], ["<image> Hi"])
    assert isinstance(given["images"][0], list)


def test_without_its_record_the_generic_rule_holds(made_up):
    model, processor = made_up
    anatomy = find_anatomy(model)
    assert anatomy.family == Family("made_up")
    assert not anatomy.is_causal
    token = anatomy.image_tokens[0]
    ids = torch.tensor([[1, token, token, token, 2]])
    assert layout(anatomy.family, model.config, ids, {})[0] == [(1, None), (2, None), (3, None)]
    with pytest.raises(InputError, match="chat template"):
        render(model, processor, "Hi", True, None)


def test_a_third_party_registers_by_entry_point(monkeypatch):
    point = importlib.metadata.EntryPoint("theirs", "test_catalogue:THEIRS", "reweigh.families")
    found = {"reweigh.families": [point]}
    monkeypatch.setattr("reweigh.registry.entry_points", lambda group: found.get(group, []))
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda _self: MADE_UP)
    monkeypatch.setattr(FAMILIES, "_loaded", dict(FAMILIES._loaded))
    assert family_of(SimpleNamespace(model_type="theirs")) is MADE_UP


def test_a_refused_family_is_refused_wherever_it_comes_from(made_up, monkeypatch):
    monkeypatch.setattr(FAMILIES, "_loaded", dict(FAMILIES._loaded))
    FAMILIES.add("made_up", Family("made_up", refused="has no eyes"))
    with pytest.raises(UnsupportedError, match="no eyes"):
        find_anatomy(made_up[0])


def test_built_in_names_are_families_of_transformers_and_unique():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    names = [family.name for family in BUILT_IN]
    assert len(names) == len(set(names))
    assert set(names) <= set(CONFIG_MAPPING_NAMES)
    with pytest.raises(InputError, match="exist"):
        FAMILIES.add("llava", MADE_UP)
