"""PAI, SID and OPERA switch attention only while attached, and leave nothing behind."""

from __future__ import annotations

import functools

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface

import generating
import reweigh
from checkpoints import FAMILIES
from reweigh.errors import InputError, UnsupportedError

STEPS = 4
run = functools.partial(generating.run, steps=STEPS)


@pytest.mark.parametrize("family", FAMILIES)
def test_registered_attention_without_edit_is_the_model(family, loaded, batch):
    """Grouped heads, windows and soft caps included: an edit of zero blocks must change nothing."""
    model, processor = loaded(family)
    inputs = batch(family)
    options = {
        "max_new_tokens": 4,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    base = model.generate(**inputs, **options)
    with reweigh.decoder("pai", model, processor, alpha=0.5, gamma=1.0, start_layer=4):
        assert model.config.get_text_config()._attn_implementation.startswith("reweigh_")
        same = model.generate(**inputs, **options)
    with reweigh.decoder("pai", model, processor, alpha=0.5, gamma=1.0):
        other = model.generate(**inputs, **options)
    for ours, theirs in zip(same.logits, base.logits, strict=True):
        torch.testing.assert_close(ours, theirs, atol=3e-4, rtol=1e-4)
    assert not torch.allclose(other.logits[0], base.logits[0], atol=1e-3)


def registered():
    names = [*AttentionInterface._global_mapping, *AttentionMaskInterface._global_mapping]
    return [name for name in names if name.startswith("reweigh_")]


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_is_put_back(family, loaded, batch):
    model, processor = loaded(family)
    before = {key: part._attn_implementation for key, part in configs(model).items()}
    with reweigh.decoder("sid", model, processor):
        inside = {key: part._attn_implementation for key, part in configs(model).items()}
        assert len(registered()) == 2
    assert {key: part._attn_implementation for key, part in configs(model).items()} == before
    assert registered() == []
    changed = {key for key in before if inside[key] != before[key]}
    assert changed == {"text_config"}, "the vision tower keeps its own attention"
    with pytest.raises(RuntimeError, match="stop"), reweigh.decoder("opera", model, processor):
        raise RuntimeError("stop")
    assert registered() == []
    assert {key: part._attn_implementation for key, part in configs(model).items()} == before


def configs(model):
    return {"": model.config, **{key: getattr(model.config, key) for key in model.config.sub_configs}}


@pytest.mark.parametrize("method", ["pai", "sid", "opera"])
def test_attention_that_cannot_be_switched_is_refused(method, loaded, monkeypatch):
    model, processor = loaded("llava")
    monkeypatch.setattr(model, "set_attn_implementation", lambda name: None)
    attached = reweigh.decoder(method, model, processor)
    with pytest.raises(UnsupportedError, match="edited"):
        attached.__enter__()
    assert registered() == []


def test_options_out_of_range(loaded):
    model, processor = loaded("llava")
    with pytest.raises(InputError, match="gamma"):
        reweigh.decoder("pai", model, processor, gamma=0.5)
    with pytest.raises(InputError, match="start_layer"):
        reweigh.decoder("pai", model, processor, start_layer=9)
    with pytest.raises(InputError, match="layer 4"):
        reweigh.decoder("sid", model, processor, layer=4)


@pytest.mark.parametrize(
    ("method", "options"),
    [("pai", {"alpha": 2.0, "gamma": 1.0}), ("only", {}), ("memvr", {"gamma": 0.0, "ratio": 0.5})],
)
def test_a_pre_allocated_cache_gives_the_same_answer(method, options, loaded, batch):
    """Its mask has four dimensions and keys behind the sequence; the first row is padded."""
    model, processor = loaded("llava")
    inputs = batch("llava")
    with reweigh.decoder(method, model, processor, **options):
        growing = run(model, inputs)
        fixed = run(model, inputs, cache_implementation="static")
    for ours, theirs in zip(fixed.logits, growing.logits, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)
