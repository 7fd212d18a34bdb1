"""The lens reads what the model would say, in its own type or float32, in bounded pieces."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import twin
from checkpoints import FAMILIES, load
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.method import lens as module
from reweigh.method.evidence import read_evidence
from reweigh.method.lens import Lens, lens_disagreement
from reweigh.method.sums import ReadoutSums

pytestmark = pytest.mark.numerics


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def lens_of(anatomy, **options):
    """The lens of a model's parts."""
    return Lens(anatomy.norm, anatomy.head, **options)


@pytest.mark.parametrize("layer", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_every_block_is_norm_and_head_of_its_hidden_states(case, layer):
    inputs = case.inputs()
    states = twin.hidden_states(case.model, inputs)
    [expected] = twin.lens(case.model, inputs, layer)
    columns = twin.visual_columns(case.model, inputs, states)[0]
    read = lens_of(find_anatomy(case.model))
    with torch.no_grad():
        if layer < 3:
            found = read.read(states[layer + 1][0, columns])
        else:  # transformers reports the last one normed already
            found = read.read(states[layer + 1][0, columns], norm=False)
            own = case.model(**inputs).logits[0, columns]
            torch.testing.assert_close(found, own, atol=2e-5, rtol=0)
    assert torch.equal(found, expected)
    assert read.dtype == "float32"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_natively_and_upcast(checkpoint, dtype):
    model, _ = load(checkpoint("llava"))
    model = model.to(dtype)
    anatomy = find_anatomy(model)
    states = torch.randn(9, 48).to(dtype)
    with torch.no_grad():
        native, upcast = lens_of(anatomy).read(states), lens_of(anatomy, dtype="float32").read(states)
        normed = anatomy.norm(states)
        assert torch.equal(native, model.lm_head(normed))
        exact = normed.double() @ model.lm_head.weight.double().T
    assert (native.dtype, upcast.dtype) == (dtype, torch.float32)
    assert lens_of(anatomy).dtype == str(dtype).removeprefix("torch.")
    assert lens_of(anatomy, dtype="float32").dtype == "float32"
    torch.testing.assert_close(upcast.double(), exact, atol=1e-5, rtol=1e-5)
    assert (native.double() - exact).abs().max() > 1e-3


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("block", [1, 7, 40, 1000])
def test_upcasting_goes_through_the_head_in_blocks(monkeypatch, bias, block):
    monkeypatch.setattr(module, "VOCAB_BLOCK", block)
    head = nn.Linear(6, 40, bias=bias).to(torch.bfloat16)
    states = torch.randn(5, 6).to(torch.bfloat16)
    with torch.no_grad():
        found = Lens(nn.Identity(), head, dtype="float32").read(states)
        expected = nn.functional.linear(
            states.float(), head.weight.float(), head.bias.float() if bias else None
        )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_head_in_float32_is_called_as_it_is():
    head = nn.Linear(6, 40)
    states = torch.randn(5, 6)
    with torch.no_grad():
        assert torch.equal(Lens(nn.Identity(), head, dtype="float32").read(states), head(states))


def test_a_head_without_floats_cannot_be_upcast():
    class Packed(nn.Module):
        weight = torch.zeros(4, 2, dtype=torch.uint8)
        in_features, out_features = 3, 8

        def forward(self, states):
            return states.new_zeros(states.shape[0], 8)

    assert Lens(nn.Identity(), Packed()).read(torch.zeros(2, 3)).shape == (2, 8)
    assert Lens(nn.Identity(), Packed()).dtype == "float32"
    with pytest.raises(UnsupportedError, match="Packed") as caught:
        Lens(nn.Identity(), Packed(), dtype="float32").read(torch.zeros(2, 3))
    assert "native" in caught.value.hint


class Counting(nn.Linear):
    def forward(self, states):
        self.seen.append(len(states))
        return super().forward(states)


@pytest.mark.parametrize("positions", [0, 9])
@pytest.mark.parametrize("chunk", [1, 4, 5, 9, 10, 100])
def test_chunks_are_consecutive_and_bounded(chunk, positions):
    head = Counting(6, 11)
    head.seen, states, sums = [], torch.randn(positions, 6), ReadoutSums(11)
    read_evidence(Lens(nn.Identity(), head, chunk=chunk), states, sums)
    # a head that read nothing is asked for its type with one state of zeros
    assert head.seen == [len(part) for part in states.split(chunk) if len(part)] or (
        head.seen,
        positions,
    ) == ([1], 0)
    whole = ReadoutSums(11)
    with torch.no_grad():
        whole.add(head(states))
    assert torch.equal(sums.ranks, whole.ranks)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"chunk": 0}, "chunk"), ({"chunk": 2.5}, "chunk"), ({"dtype": "float64"}, "float64")],
)
def test_impossible_options(options, message):
    with pytest.raises(InputError, match=message):
        Lens(nn.Identity(), nn.Linear(2, 3), **options)


# --- agreement of lens and model ---


logits = st.integers(0, 2**31).map(
    lambda seed: torch.randn(4, 120, generator=torch.Generator().manual_seed(seed))
)


@settings(max_examples=25)
@given(logits, st.floats(0.1, 8.0), st.floats(2.0, 60.0))
def test_a_scale_or_a_soft_cap_is_not_a_disagreement(raw, scale, cap):
    assert lens_disagreement(raw, raw) == 0
    assert lens_disagreement(raw, raw * scale) < 1e-6
    assert lens_disagreement(raw, (cap * torch.tanh(raw.double() / cap))) < 1e-6


@settings(max_examples=25)
@given(logits, logits)
def test_other_logits_disagree(one, other):
    if not torch.equal(one, other):
        assert lens_disagreement(one, other) > 0.1


def test_disagreement_by_hand():
    read = torch.tensor([[0.0, 4.0, 2.0, 10.0]])
    assert lens_disagreement(read, torch.tensor([[1.0, 3.0, 2.0, 4.0]])) == 0
    assert lens_disagreement(read, torch.tensor([[1.0, 2.0, 3.0, 4.0]])) == pytest.approx(0.2)  # 2 before 4
    assert lens_disagreement(read, torch.tensor([[1.0, 5.0, 2.0, 4.0]])) == pytest.approx(0.6)  # 4 before 10


def test_a_better_token_outside_the_compared_ones_is_seen():
    own = torch.arange(100, 0, -1).float()[None]
    read = own.clone()
    read[0, 90] = 500.0
    assert lens_disagreement(read, own, top=10) > 0.5


def test_logits_that_are_not_numbers_never_agree():
    broken = torch.randn(2, 60)
    broken[0, 3] = float("nan")
    assert not lens_disagreement(broken, torch.randn(2, 60)) <= 1.0
