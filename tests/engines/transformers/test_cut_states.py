"""A prompt whose visual columns are known but not read never ends as unedited without an error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import reweigh
from checkpoints import picture
from checkpoints.more import more
from generating import run
from reweigh import world
from reweigh.doctor.model import examine, lens_parity
from reweigh.engines.transformers.manager import watching
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.load import load
from reweigh.families.prompts import build_inputs
from reweigh.tables.table import ReferenceTable

BLOCKS = range(4)


def table(layer, vocabulary):
    """References far above what anything can reach, so that every candidate is suppressed."""
    tokens, ones = np.arange(vocabulary), np.ones(vocabulary)
    return ReferenceTable(layer, 0.5, tokens, ones, ones.astype(int), {"identity": {"model_id": "made up"}})


@pytest.fixture(scope="module")
def shared():
    return more("gemma4")


@pytest.fixture
def cut():
    """The embedded model, whose final norm sees the last column only."""
    model, processor = load(world.path())
    norm = find_anatomy(model).norm
    removed = norm.register_forward_pre_hook(lambda module, args: (args[0][:, -1:],))
    inputs = build_inputs(model, processor, [picture()], ["What is in it?"])
    yield model, processor, inputs
    removed.remove()


@pytest.mark.parametrize("layer", BLOCKS)
def test_every_block_of_a_model_that_shares_keys_is_edited(shared, layer):
    model, inputs = shared
    plain = run(model, inputs, steps=3).logits[0]
    rw = reweigh.attach(model, None, table=table(layer, 128), beta=3.0, force=True)
    with rw.using(trace=True) as request:
        edited = run(model, inputs, steps=3).logits[0]
    assert [len(one.positions) for one in request.evidence] == [4]
    assert (plain - edited).abs().max() > 1.0


@pytest.mark.parametrize("layer", BLOCKS)
def test_its_evidence_is_that_of_whole_states(shared, layer):
    model, inputs = shared
    [found] = reweigh.measure(model, inputs, layers=[layer])
    anatomy, passes = find_anatomy(model), []
    with torch.no_grad(), watching(anatomy, [layer], passes.append):
        model(**inputs, output_hidden_states=True)  # transformers leaves no column out then
        read = anatomy.head(anatomy.norm(passes[0].states[layer][0, list(found.positions)]))
    ranks = 1 + (read[:, None, :] > read[:, :, None]).sum(-1)
    torch.testing.assert_close(found.at(layer), (1.0 / ranks).mean(0))


def test_a_text_of_such_a_model_is_the_base_models_bit_for_bit(shared):
    model, inputs = shared
    text = {name: inputs[name][:, -5:] for name in ("input_ids", "attention_mask")}
    rw = reweigh.attach(model, None, table=table(2, 128), beta=3.0, force=True)
    base = run(model, text, steps=3)
    with rw:
        same = run(model, text, steps=3)
    for one, other in zip(base.logits, same.logits, strict=True):
        assert torch.equal(one, other)


def test_cut_states_are_refused_wherever_an_image_is_read(cut, tmp_path):
    model, processor, inputs = cut
    rw = reweigh.attach(
        model, processor, table=world.table_path()
    )  # also reads the last block, to prove the lens
    for use in (
        lambda: reweigh.measure(model, inputs),
        lambda: rw.generate(**inputs, max_new_tokens=2),
        lambda: rw.describe(picture()),
        lambda: reweigh.calibrate(model, processor, [picture()], out=tmp_path / "table", layers=[4]),
        lambda: lens_parity(model, inputs),
        lambda: examine(model, processor),
    ):
        with pytest.raises(UnsupportedError, match="stream after block 4"):
            use()


def test_a_text_may_have_cut_states(cut):
    model, processor, _ = cut
    text = build_inputs(model, processor, [None], ["Hello."])
    rw = reweigh.attach(model, processor, table=world.table_path())
    assert torch.equal(rw.generate(**text, max_new_tokens=2), model.generate(**text, max_new_tokens=2))
