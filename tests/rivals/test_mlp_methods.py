"""VISTA, VTI and Nullu equal their formulas written out in NumPy, and a decoder written out by hand."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_by_hand import embedded, forward
from random_vectors import random_vectors

import generating
import reweigh
from checkpoints import BLOCKS
from reweigh.errors import ArtifactError, InputError, MismatchError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.identity import identify
from reweigh.rivals.nullu import projected_off
from reweigh.rivals.tools.edits import turned
from reweigh.rivals.tools.vectors import Pairs, SteeringVectors

pytestmark = pytest.mark.numerics

run = functools.partial(generating.run, steps=4)


def turn_twin(x, v, strength, against):
    """Vector by vector, in double precision."""
    made = np.zeros_like(x)
    for place, one in enumerate(x):
        length, width = np.sqrt((one**2).sum()), np.sqrt((v**2).sum())
        if length == 0:
            continue
        factor = 1 + max(0.0, float(-(one @ v) / (length * width))) if against and width else 1.0
        moved = one / length + (strength * factor * v / width if width else 0)
        made[place] = length * moved / np.sqrt((moved**2).sum())
    return made


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.0, 2.0), st.booleans())
def test_a_turn_is_the_written_out_one_and_keeps_the_length(seed, strength, against):
    draw = np.random.default_rng(seed)
    x, v = draw.normal(size=(5, 7)) * draw.lognormal(size=(5, 1)), draw.normal(size=7)
    found = turned(torch.tensor(x), torch.tensor(v).expand(5, 7), strength, against=against).numpy()
    np.testing.assert_allclose(found, turn_twin(x, v, strength, against), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.linalg.norm(x, axis=1))


def test_a_turn_by_nothing_of_nothing_and_toward_nothing():
    x, v = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(turned(x, v, 0.0), x)
    torch.testing.assert_close(turned(x, torch.zeros(3, 4), 1.0, against=True), x)
    assert (turned(torch.zeros(3, 4), torch.zeros(3, 4), 1.0) == 0).all()


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_a_projection_removes_the_span_and_nothing_else(seed, rank):
    draw = np.random.default_rng(seed)
    basis = np.linalg.qr(draw.normal(size=(7, rank)))[0].T
    x = draw.normal(size=(3, 7))
    found = projected_off(torch.tensor(x), torch.tensor(basis)).numpy()
    np.testing.assert_allclose(found, x @ (np.eye(7) - basis.T @ basis), atol=1e-12)
    np.testing.assert_allclose(found @ basis.T, 0, atol=1e-12)


def directions(model, made_with=None):
    """Random directions of the model's shape."""
    blocks, width = len(find_anatomy(model).blocks), model.config.get_text_config().hidden_size
    return random_vectors(blocks, width, made_with=made_with)


def test_directions_equal_their_definitions():
    draw, pairs, states = np.random.default_rng(1), Pairs(), []
    for number in range(6):
        states.append([draw.normal(size=(4 + number, 3, 5)).astype(np.float32) for _ in range(2)])
        pairs.add(*states[-1])
    last = np.array([(t[-1] - h[-1]).reshape(-1) for t, h in states], dtype=np.float64)
    values, vectors = np.linalg.eigh(np.cov(last.T, bias=True))
    component = vectors[:, values.argmax()]
    scores = (last - last.mean(axis=0)) @ component
    component = component * np.sign(scores[np.abs(scores).argmax()])
    wanted = (last.mean(axis=0) + component).reshape(3, 5)[1:]
    np.testing.assert_allclose(pairs.direction(), wanted, atol=1e-5)
    for block, found in enumerate(pairs.subspace()):
        rows = np.array([(t.mean(axis=0) - h.mean(axis=0))[block + 1] for t, h in states], dtype=np.float64)
        values, vectors = np.linalg.eigh(rows.T @ rows)
        for rank in range(1, len(found) + 1):  # signs are free, the spans are not
            best = vectors[:, np.argsort(values)[::-1][:rank]]
            np.testing.assert_allclose(found[:rank].T @ found[:rank], best @ best.T, atol=1e-4)


def test_pairs_of_nothing_are_refused():
    with pytest.raises(reweigh.ReweighError, match="pair"):
        Pairs().direction()


def by_hand(model, inputs, found, mlp, after=lambda layer, states: states):
    """The logits of each generated token by a Llama written out, with edited MLP outputs."""
    length = inputs["input_ids"].shape[1]
    tokens = found.sequences[:, length:-1]
    wanted = forward(model, embedded(model, inputs, tokens), mlp=mlp, after=after)
    return [wanted[:, length - 1 + step] for step in range(len(found.logits))]


@pytest.mark.parametrize("method", ["vti", "nullu"])
def test_steered_answers_equal_a_decoder_written_by_hand(method, loaded, batch):
    model, processor = loaded("llava")
    inputs, found_directions = batch("llava", rows=(0,)), directions(model)
    options = {"vti": {"lam": 4.0}, "nullu": {"rank": 3}}[method]
    with reweigh.decoder(method, model, processor, vectors=found_directions, force=True, **options):
        found = run(model, inputs)
    half = len(model.model.language_model.layers) // 2

    def mlp(layer, x, out):
        states = out[0].double().numpy()
        if method == "vti":
            new = turn_twin(states, found_directions.direction[layer].astype(np.float64), 0.4, False)
        elif layer < half:
            return out
        else:
            basis = found_directions.subspace[layer, :3].astype(np.float64)
            new = states - states @ basis.T @ basis
        return torch.tensor(new, dtype=out.dtype)[None]

    for mine, wanted in zip(found.logits, by_hand(model, inputs, found, mlp), strict=True):
        torch.testing.assert_close(mine, wanted, atol=5e-4, rtol=1e-3)
    assert (run(model, inputs).logits[0] - found.logits[0]).abs().max() > 1e-2


@pytest.mark.parametrize("layers", [[2, 3], [2, BLOCKS]])
def test_vista_equals_a_decoder_written_by_hand(layers, loaded, batch):
    """The directions come from two passes of the unsteered model; prompt and steps are then steered alike.

    Of the layers mixed into the logits, only the last is normed.
    """
    model, processor = loaded("llava")
    inputs, lam, alpha = batch("llava", rows=(0,)), 0.5, 0.3
    with reweigh.decoder("vista", model, processor, lam=lam, alpha=alpha, layers=layers) as attached:
        found = run(model, inputs)
    assert attached.decoder.indices == layers
    without = inputs["input_ids"][inputs["input_ids"] != model.config.image_token_id][None]
    seen = []
    for states in (embedded(model, inputs), model.get_input_embeddings()(without)):
        last = []
        forward(model, states, after=lambda layer, now, last=last: last.append(now[0, -1]) or now)
        seen.append(torch.stack(last))
    vectors = (seen[0] - seen[1]).double().numpy()
    vectors[0, 0] += 1
    kept = {}

    def mlp(layer, x, out):
        turn = turn_twin(out[0].double().numpy(), vectors[layer], lam, True)
        return torch.tensor(turn, dtype=out.dtype)[None]

    def keep(layer, states):
        kept[layer] = states
        return states

    length = inputs["input_ids"].shape[1]
    for step, (mine, main) in enumerate(
        zip(found.logits, by_hand(model, inputs, found, mlp, keep), strict=True)
    ):
        late = {index: kept[index - 1][:, length - 1 + step] for index in layers}
        if BLOCKS in late:
            late[BLOCKS] = model.model.language_model.norm(late[BLOCKS])
        early = [model.lm_head(state) for state in late.values()]
        wanted = alpha * sum(early) / 2 + (1 - alpha) * main
        torch.testing.assert_close(mine, wanted, atol=1e-3, rtol=1e-3)
    with reweigh.decoder("vista", model, processor, lam=0.0, alpha=alpha, layers=layers):
        assert (run(model, inputs).logits[0] - found.logits[0]).abs().max() > 1e-2


def test_what_cannot_be_steered_is_refused(loaded, tmp_path):
    gemma, processor = loaded("gemma3")
    for method, options in (("vista", {}), ("vti", {"vectors": directions(gemma), "force": True})):
        with pytest.raises(UnsupportedError, match="norms the output"):
            reweigh.decoder(method, gemma, processor, **options)
    model, processor = loaded("llava")
    identity = identify(find_anatomy(model), processor).to_json()
    own, other = directions(model, made_with={"identity": identity}), directions(model)
    own.save_pretrained(tmp_path)
    reweigh.decoder("nullu", model, processor, vectors=tmp_path)
    with pytest.raises(MismatchError, match="steering vectors"):
        reweigh.decoder("nullu", model, processor, vectors=other)
    with pytest.raises(InputError, match="rank"):
        reweigh.decoder("nullu", model, processor, vectors=own, rank=99)
    with pytest.raises(ArtifactError):
        dataclasses.replace(own, subspace=own.subspace * 2).verify()
    damaged = bytearray((tmp_path / "steering_vectors.safetensors").read_bytes())
    damaged[-3] ^= 1
    (tmp_path / "steering_vectors.safetensors").write_bytes(damaged)
    with pytest.raises(ArtifactError, match="steering_vectors"):
        SteeringVectors.load(tmp_path)
