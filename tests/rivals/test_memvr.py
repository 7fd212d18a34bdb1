"""MemVR equals its formulas written out in NumPy and a decoder written out by hand; the edits stay with their request."""

from __future__ import annotations

import copy
import functools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_by_hand import embedded, forward

import generating
import numerics
import reweigh
from checkpoints import picture, prompt
from checkpoints.more import more
from reweigh.engines.base import Pass, Prompt
from reweigh.engines.rows import Batch, Row
from reweigh.engines.run import suspended
from reweigh.engines.session import tie
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import encode
from reweigh.rivals.memvr import Looks, MemVR, look_again, uncertainty
from reweigh.rivals.tools.edits import StreamEditor

pytestmark = pytest.mark.numerics

STEPS = 4
run = functools.partial(generating.run, steps=STEPS)


def hooks(model):
    """How many hooks there are on all parts of a model."""
    return sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in model.modules())


def entropy_twin(row):
    """Entropy over ln 10 of the softmax of the ten largest numbers."""
    best = np.sort(np.asarray(row, dtype=np.float64))[::-1][:10]
    shares = np.exp(best - best[0]) / np.exp(best - best[0]).sum()
    return float(-sum(share * np.log(share) for share in shares if share > 0) / np.log(10))


def mix_twin(x, out, visual, ratio):
    """Position by position and feature by feature."""
    again = np.zeros_like(out)
    for place in range(len(x)):
        for feature in visual:
            again[place] += float(x[place] @ feature) * feature
    return (1 - ratio) * out + ratio * np.abs(out).mean() / np.abs(again).mean() * again


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(10, 60), st.floats(0.1, 30.0))
def test_uncertainty_is_the_written_out_entropy_of_each_row(seed, width, spread):
    logits = np.random.default_rng(seed).normal(size=(3, width)) * spread
    found = uncertainty(torch.tensor(logits))
    np.testing.assert_allclose(found.numpy(), [entropy_twin(row) for row in logits], atol=1e-5)


def test_uncertainty_of_ties_is_one_and_of_one_survivor_is_zero():
    assert float(uncertainty(torch.zeros(1, 50))) == pytest.approx(1.0)
    sure = torch.full((1, 50), -1e4)
    sure[0, 7] = 0.0
    assert float(uncertainty(sure)) == 0.0


def test_the_mix_is_the_written_out_one():
    draw = np.random.default_rng(5)
    x, out, visual = draw.normal(size=(4, 6)), draw.normal(size=(4, 6)), draw.normal(size=(3, 6))
    found = look_again(torch.tensor(out), torch.tensor(x), torch.tensor(visual), 0.3)
    np.testing.assert_allclose(found.numpy(), mix_twin(x, out, visual, 0.3), rtol=1e-10)


@pytest.mark.parametrize("gamma", [0.2, 0.9])
def test_whole_answers_equal_a_decoder_written_by_hand(gamma, loaded, batch):
    """What a pass mixed stays in the cache: the twin mixes the prompt as one pass and each token as another."""
    model, processor = loaded("llava")
    inputs, ratio = batch("llava", rows=(0,)), 0.4
    attached = reweigh.decoder("memvr", model, processor, ratio=ratio, end=3, gamma=gamma)
    assert list(attached.decoder.read) == [1, 2]
    with attached:
        found = run(model, inputs)
    length = inputs["input_ids"].shape[1]
    tokens = found.sequences[:, length:-1]
    states = embedded(model, inputs, tokens).detach()
    image = torch.cat([inputs["input_ids"], tokens], dim=1)[0] == model.config.image_token_id
    visual = states[0, image].double().numpy()
    passes = [range(length), *([place] for place in range(length, states.shape[1]))]
    decoder, fired = model.model.language_model, {}

    def look(layer, states):
        read = decoder.norm(states)
        for number, columns in enumerate(passes if layer in (1, 2) else ()):
            if entropy_twin(model.lm_head(read[0, columns[-1]]).numpy()) > gamma:
                fired.setdefault(number, layer + 1)
        return states

    def mlp(layer, x, out):
        out = out.clone()
        for number, columns in enumerate(passes):
            if fired.get(number) == layer:
                given = x[0, columns].double().numpy(), out[0, columns].double().numpy()
                part = mix_twin(*given, visual, ratio)
                out[0, columns] = torch.tensor(part, dtype=out.dtype)
        return out

    wanted = forward(model, states, mlp=mlp, after=look)
    for step, logits in enumerate(found.logits):
        torch.testing.assert_close(logits, wanted[:, length - 1 + step], atol=5e-4, rtol=1e-3)
    base = run(model, inputs)
    assert bool(fired) != torch.equal(base.logits[0], found.logits[0]) or gamma == 0.9


def test_rows_decide_by_themselves(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava")
    attached = reweigh.decoder("memvr", model, processor, ratio=0.5)
    unsure = []
    attached.decoder.lens = copy.copy(attached.decoder.lens)
    read = attached.decoder.lens.read
    attached.decoder.lens.read = lambda states, norm=True: (
        unsure.append(read(states, norm=norm)) or unsure[-1]
    )
    with attached:
        model.generate(**inputs, max_new_tokens=1, do_sample=False)
    low, high = sorted(uncertainty(unsure[0]).tolist())
    gamma = (low + high) / 2
    base = run(model, inputs)
    with reweigh.decoder("memvr", model, processor, ratio=0.5, gamma=gamma):
        ours = run(model, inputs)
    same = [torch.equal(base.logits[0][row], ours.logits[0][row]) for row in (0, 1)]
    assert sorted(same) == [False, True]


@pytest.fixture
def mixed_in(monkeypatch):
    """The image features that are mixed into an MLP, each time it happens."""
    seen = []

    def noted(out, x, visual, *rest):
        seen.append(visual)
        return look_again(out, x, visual, *rest)

    monkeypatch.setattr("reweigh.rivals.memvr.look_again", noted)
    return seen


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_the_last_image_of_a_row_is_looked_at(family, loaded, mixed_in, monkeypatch):
    model, processor = loaded(family)
    text = prompt(processor, images=2)
    inputs = encode(model, processor, [text], [[picture(1, (56, 84)), picture(2)]])
    seen, read = [], MemVR._read_images
    monkeypatch.setattr(
        MemVR,
        "_read_images",
        lambda self, states, forward: seen.append(states) or read(self, states, forward),
    )
    with reweigh.decoder("memvr", model, processor, gamma=0.0, ratio=0.5):
        run(model, inputs)
    image = find_anatomy(model).image_tokens[0]
    alone = encode(model, processor, [prompt(processor)], [[picture(2)]])
    count = int((alone["input_ids"][0] == image).sum())
    columns = (inputs["input_ids"][0] == image).nonzero().flatten()
    assert len(columns) > count
    assert len(mixed_in) == STEPS
    assert all(torch.equal(one, seen[0][0, columns[-count:]]) for one in mixed_in)


def test_a_second_turn_still_sees_the_first_turns_image(loaded, batch, mixed_in):
    model, processor = loaded("llava")
    inputs, seen = batch("llava", rows=(0,)), mixed_in
    more_ids = torch.tensor([[40, 41, 42]])
    with reweigh.decoder("memvr", model, processor, gamma=0.0, ratio=0.5):
        first = run(model, inputs)
        whole = torch.cat([first.sequences, more_ids], dim=1)
        run(
            model,
            {"input_ids": whole, "attention_mask": torch.ones_like(whole)},
            past_key_values=first.past_key_values,
        )
    assert len(seen) == 2 * STEPS
    assert all(torch.equal(one, seen[0]) for one in seen)


def test_passes_in_which_the_method_is_not_defined_are_refused(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    attached = reweigh.decoder("memvr", model, processor, gamma=0.0)
    with attached, pytest.raises(UnsupportedError, match="cache"):
        run(model, inputs, use_cache=False)
    with attached, pytest.raises(UnsupportedError, match="columns"):
        model.generate(**inputs, max_new_tokens=8, do_sample=False, assistant_model=copy.deepcopy(model))
    with pytest.raises(InputError, match="start"):
        reweigh.decoder("memvr", model, processor, start=3)


def test_a_mixture_of_experts_is_refused_with_the_reason():
    model, _ = more("aria")
    with pytest.raises(UnsupportedError, match="mixture of experts"):
        reweigh.decoder("memvr", model)


def test_another_thread_and_a_copied_model_are_never_edited(loaded, batch):
    model, processor = loaded("llava")
    inputs, found = batch("llava"), {}
    base, before = run(model, inputs), hooks(model)
    with reweigh.decoder("memvr", model, processor, gamma=0.0, ratio=0.9):
        twin = numerics.copied(model)
        other = threading.Thread(target=lambda: found.update(other=run(model, inputs)))
        other.start()
        other.join()
        found["copy"] = run(twin, inputs)
        ours = run(model, inputs)
    assert all(torch.equal(a, b) for a, b in zip(base.logits, found["other"].logits, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(base.logits, found["copy"].logits, strict=True))
    assert not torch.equal(base.logits[0], ours.logits[0])
    after = run(model, inputs)
    assert all(torch.equal(a, b) for a, b in zip(base.logits, after.logits, strict=True))
    assert hooks(model) == before


def test_a_row_is_mixed_once_while_another_still_waits(loaded):
    model, processor = loaded("llava")
    decoder = reweigh.decoder("memvr", model, processor, end=3).decoder
    sure, unsure = torch.zeros(20), torch.zeros(20)
    sure[3] = 99.0
    rows = [Row(positions=[0], patches=[None], bounds=[1]) for _ in range(2)]
    prompt = Prompt(run=None, inputs={}, start=0, end=4, rows=rows, batch=Batch(1, rows))
    forward = Pass(prompt=prompt, rows=rows, past=0, length=4)
    found = prompt.scratch = Looks([None, None])
    decoder.edit_state(-1, torch.ones(2, 4, 4), forward)
    for layer, rows in ((1, [unsure, sure]), (2, [unsure, unsure])):
        decoder.lens = SimpleNamespace(read=lambda states, rows=rows: torch.stack(rows))
        decoder.edit_state(layer, torch.zeros(2, 4, 4), forward)
    assert found.due == {0: 2, 1: 3}


def test_the_passes_of_another_decoders_request_are_never_edited(loaded, batch):
    class Louder(StreamEditor):
        """Doubles the stream after the first block, whatever the pass."""

        state_layers = (0,)

        def edit_state(self, layer, states, forward):
            return 2 * states

    model, processor = loaded("llava")
    inputs, found = batch("llava"), {}
    base = run(model, inputs)

    def beside():
        with reweigh.decoder("greedy", model, processor):
            found["other"] = run(model, inputs)

    with tie(Louder(find_anatomy(model), processor)):
        ours = run(model, inputs)
        other = threading.Thread(target=beside)
        other.start()
        other.join()
        with suspended(model):
            found["suspended"] = run(model, inputs)
    assert not torch.equal(base.logits[0], ours.logits[0])
    for name in ("other", "suspended"):
        assert all(torch.equal(a, b) for a, b in zip(base.logits, found[name].logits, strict=True))
