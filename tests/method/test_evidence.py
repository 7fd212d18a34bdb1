"""Evidence of whole models against a brute-force twin, and what must leave it untouched."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY, load
from checkpoints.tokens import TOKENS
from reweigh.engines.reader import Reader
from reweigh.errors import InputError, NumericsError
from reweigh.families.anatomy import find_anatomy
from reweigh.method.evidence import Evidence
from reweigh.method.lens import Lens
from reweigh.method.sums import ReadoutSums

pytestmark = pytest.mark.numerics

MIXED = [family for family in FAMILIES if family != "instructblip"]


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


@pytest.mark.parametrize("layer", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_evidence_equals_the_twin(case, layer):
    inputs = case.inputs([1, 2], ["What is in the image?", "Describe."])
    found = reweigh.measure(case.model, inputs, layers=[layer])
    for row, expected in zip(found, twin.evidence(case.model, inputs, layer), strict=True):
        assert row.values.shape == (1, VOCABULARY)
        assert row.values.dtype == torch.float32
        np.testing.assert_allclose(row.at(layer).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_several_layers_of_one_pass_equal_single_ones(case):
    inputs = case.inputs()
    [together] = reweigh.measure(case.model, inputs, layers=[2, 0, -1])
    assert together.layers == (2, 0, 3)
    for layer in (0, 2, 3):
        [alone] = reweigh.measure(case.model, inputs, layers=[layer])
        assert torch.equal(together.at(layer), alone.at(layer))
    assert not torch.equal(together.at(0), together.at(2))
    with pytest.raises(InputError, match="layer 1"):
        together.at(1)


@pytest.mark.parametrize("family", MIXED)
def test_rows_without_an_image_have_no_evidence(case):
    inputs = case.inputs([1, None, (2, 3)], ["What is it?", "Is there a clock on the wall?", "They are"])
    found = reweigh.measure(case.model, inputs, layers=[1])
    assert [row is None for row in found] == [False, True, False]
    expected = twin.evidence(case.model, inputs, 1)
    for row in (0, 2):
        np.testing.assert_allclose(found[row].at(1).numpy(), expected[row], rtol=1e-6)
    assert {place.image for place in found[2].patches} == {0, 1}


@pytest.mark.parametrize("family", FAMILIES)
def test_columns_and_places_belong_together(case):
    inputs = case.inputs()
    [found] = reweigh.measure(case.model, inputs)
    states = twin.hidden_states(case.model, inputs)
    assert list(found.positions) == twin.visual_columns(case.model, inputs, states)[0]
    assert len(found.patches) == len(found.positions)
    assert all((place is None) == (case.family == "instructblip") for place in found.patches)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_located_sums_to_the_evidence(case):
    inputs = case.inputs([1, 2], ["What is it?", "It"])
    chosen = [7, 399, 250, 7]
    for row in reweigh.measure(case.model, inputs, layers=[0, 2], locate=chosen, chunk=5):
        assert row.located.shape == (2, len(row.positions), 4)
        torch.testing.assert_close(row.located.mean(dim=1), row.values[:, chosen], atol=1e-7, rtol=1e-6)
    [lens] = twin.lens(case.model, case.inputs(), 2)
    [row] = reweigh.measure(case.model, case.inputs(), layers=[2], locate=chosen)
    ranks = torch.stack([1 + (lens > lens[:, [token]]).sum(1) for token in chosen], dim=1)
    assert torch.equal(row.located[0], 1 / ranks.float())


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_some_tokens_are_measured_among_all(case):
    inputs = case.inputs()
    [whole] = reweigh.measure(case.model, inputs, layers=[1, 3])
    [some] = reweigh.measure(case.model, inputs, layers=[1, 3], tokens=[5, 390, 200])
    assert whole.tokens is None
    assert some.tokens == (5, 390, 200)
    assert torch.equal(some.values, whole.values[:, [5, 390, 200]])
    with pytest.raises(InputError, match="400"):
        reweigh.measure(case.model, inputs, tokens=[5, 400])


@pytest.mark.parametrize("family", ["llava_next"])
@pytest.mark.parametrize("chunk", [1, 7, 288])
def test_chunks_do_not_change_the_evidence(case, chunk):
    inputs = case.inputs()
    [expected] = reweigh.measure(case.model, inputs, layers=[2])
    [found] = reweigh.measure(case.model, inputs, layers=[2], chunk=chunk)
    torch.testing.assert_close(found.values, expected.values, atol=2e-3, rtol=0)  # a product may round anew


@pytest.mark.parametrize("family", ["llava_next"])
@pytest.mark.parametrize("dtype", ["native", "float32"])
def test_working_memory_is_bounded_by_the_chunk(case, dtype, monkeypatch):
    """Neither the head nor the ranks ever get more than ``chunk`` positions, not even the model's own head."""
    rows = []
    plain = ReadoutSums.add
    monkeypatch.setattr(
        ReadoutSums, "add", lambda self, logits: (rows.append(len(logits)), plain(self, logits))[1]
    )
    head = case.model.lm_head
    hook = head.register_forward_pre_hook(lambda _, args: rows.append(args[0].numel() // args[0].shape[-1]))
    try:
        [found] = reweigh.measure(case.model, case.inputs(), layers=[0, 3], chunk=5, dtype=dtype)
    finally:
        hook.remove()
    assert len(found.positions) > 20
    assert max(rows) == 5


@pytest.mark.parametrize("family", ["llava_next"])
def test_one_chunk_of_logits_lives_at_a_time(case, monkeypatch):
    inputs, read, alive = case.inputs(), Lens.read, []

    def watched(self, *given, **options):
        assert not any(one() is not None for one in alive), "the chunk before is still held"
        logits = read(self, *given, **options)
        alive.append(weakref.ref(logits))
        return logits

    monkeypatch.setattr(Lens, "read", watched)
    reweigh.measure(case.model, inputs, layers=[1], chunk=5)
    assert len(alive) > 2


@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_run_over_the_padded_rows_of_the_head_too(case):
    """Rows beyond the tokenizer compete like any other: nothing of the head is left out."""
    inputs = case.inputs()
    assert VOCABULARY > TOKENS
    [found] = reweigh.measure(case.model, inputs, layers=[2])
    [lens] = twin.lens(case.model, inputs, 2)
    above = (lens[:, TOKENS:].amax(1, keepdim=True) > lens[:, :TOKENS]).any(0)
    cut = torch.stack([1 / (1 + (row[None, :TOKENS] > row[:TOKENS, None]).sum(1)) for row in lens]).mean(0)
    assert (found.at(2)[:TOKENS][above] < cut[above]).any()
    assert (found.at(2)[TOKENS:] > 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_model_is_ranked_in_its_own_type(checkpoint, dtype):
    model, processor = load(checkpoint("llava"))
    case = twin.Case("llava", model.to(dtype), processor)
    inputs = case.inputs()
    inputs["pixel_values"] = inputs["pixel_values"].to(dtype)
    [native] = reweigh.measure(model, inputs, layers=[2])
    [upcast] = reweigh.measure(model, inputs, layers=[2], dtype="float32")
    assert native.dtype == str(dtype).removeprefix("torch.")
    assert upcast.dtype == "float32"
    [expected] = twin.evidence(model, inputs, 2)  # ranks of the head's own half-precision logits
    np.testing.assert_allclose(native.at(2).numpy(), expected, rtol=1e-6)
    assert not torch.equal(native.values, upcast.values)


class Mapped(nn.Module):
    """A head whose logits go through a strictly increasing map of each position's own, exact in float32."""

    def __init__(self, head, powers, shifts):
        super().__init__()
        self.head, self.powers, self.shifts = head, powers, shifts

    @property
    def weight(self):
        return self.head.weight

    def forward(self, states):
        logits = self.head(states)
        if logits.dim() != 2:
            return logits
        levels = [torch.unique(row, return_inverse=True)[1] for row in logits]
        rows = [
            (level + self.shifts[j % len(self.shifts)]) * 2.0 ** self.powers[j % len(self.powers)]
            for j, level in enumerate(levels)
        ]
        return torch.stack(rows).float()


@settings(max_examples=15)
@given(
    powers=st.lists(st.integers(-40, 40), min_size=1, max_size=5),
    shifts=st.lists(st.integers(-5000, 5000), min_size=1, max_size=5),
)
def test_an_increasing_map_per_position_leaves_evidence_and_strengths_bit_identical(
    checkpoint, powers, shifts
):
    case = twin.case(checkpoint("qwen2_5_vl"))
    inputs, head = case.inputs(), case.model.lm_head
    references = twin.table(VOCABULARY)
    [before] = reweigh.measure(case.model, inputs, layers=[0, 2])
    case.model.lm_head = Mapped(head, powers, shifts)
    try:
        [after] = reweigh.measure(case.model, inputs, layers=[0, 2])
    finally:
        case.model.lm_head = head
    assert torch.equal(before.values, after.values)
    strengths = [
        twin.strengths(references, row.at(2).double().numpy(), VOCABULARY) for row in (before, after)
    ]
    assert np.array_equal(*strengths)


@pytest.mark.parametrize("family", MIXED)
def test_a_prompt_without_image_is_refused(case):
    with pytest.raises(InputError, match="no image") as caught:
        reweigh.measure(case.model, case.inputs([None], ["Hello"]))
    assert str(case.model.config.image_token_id) in caught.value.hint


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_the_processors_own_output_is_taken_as_it_is(case):
    from checkpoints import picture, prompt

    batch = case.processor(images=picture(1, (70, 50)), text=prompt(case.processor), return_tensors="pt")
    [one] = reweigh.measure(case.model, batch)
    [other] = reweigh.measure(case.model, {**batch, "use_cache": True})
    assert torch.equal(one.values, other.values)


@pytest.mark.parametrize("family", ["llava"])
def test_measuring_leaves_the_model_alone(case):
    inputs = case.inputs()
    before = vars(case.model).keys()
    with torch.no_grad():
        base = case.model(**inputs).logits
        reweigh.measure(case.model, inputs)
        with pytest.raises(ValueError, match="features"):
            reweigh.measure(case.model, {**inputs, "pixel_values": torch.cat([inputs["pixel_values"]] * 2)})
        assert torch.equal(case.model(**inputs).logits, base)
    assert vars(case.model).keys() == before


def test_evidence_is_a_plain_value():
    one = Evidence((3,), torch.zeros(1, 5), (1, 2), (None, None), "float32")
    assert one.at(3).shape == (5,)
    assert repr(one) == "<Evidence of every token at 2 visual positions, layer 3 (dmrr)>"


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_fits_a_line(case):
    [one] = reweigh.measure(case.model, case.inputs(), layers=[1, 2], locate=[5, 6])
    told = repr(one)
    assert "layers 1, 2, 2 located" in told
    assert len(told) < 120


@pytest.mark.parametrize(
    ("layers", "values", "tokens"),
    [((3, 4), torch.zeros(1, 5), None), ((3,), torch.zeros(1, 5), (1, 2))],
)
def test_evidence_whose_parts_do_not_go_together_is_refused(layers, values, tokens):
    with pytest.raises(InputError, match="evidence"):
        Evidence(layers, values, (), (), "float32", tokens)


@pytest.mark.parametrize("values", [torch.zeros(5), torch.tensor(1.0), np.zeros((1, 5), np.float32), [[0.0]]])
def test_evidence_that_is_not_a_tensor_of_layers_and_tokens_is_refused(values):
    with pytest.raises(InputError, match="tensor"):
        Evidence((3,), values, (), (), "float32")


@pytest.mark.parametrize("family", ["llava"])
def test_inputs_and_layers_that_cannot_be_measured_are_refused_by_name(case):
    inputs = case.inputs()
    ids = inputs["input_ids"]
    wrong = [
        (None, [-1], "NoneType"),
        ({**inputs, "input_ids": ids[0]}, [-1], "shape"),
        ({**inputs, "input_ids": ids.tolist()}, [-1], "list"),
        ({name: value.numpy() for name, value in inputs.items()}, [-1], "ndarray"),
        (inputs, [], "layers"),
        (inputs, 2, "layers"),
    ]
    for wrong_inputs, layers, message in wrong:
        with pytest.raises(InputError, match=message):
            reweigh.measure(case.model, wrong_inputs, layers)
    [one], [other] = (reweigh.measure(case.model, inputs, layers) for layers in ([-1], np.array([-1])))
    assert torch.equal(one.values, other.values)


@pytest.mark.parametrize("family", ["llava"])
def test_an_unknown_dtype_or_chunk(case):
    inputs = case.inputs()
    for options in ({"dtype": "int8"}, {"chunk": 0}):
        with pytest.raises(InputError):
            reweigh.measure(case.model, inputs, **options)
    assert find_anatomy(case.model).vocab_size == VOCABULARY


@pytest.mark.parametrize(
    ("states", "options", "message"),
    [
        (torch.zeros(6), {}, "shape"),
        (torch.zeros(1, 2, 6), {}, "shape"),
        (torch.zeros(2, 5), {}, "shape"),
        (torch.zeros(2, 6, dtype=torch.long), {}, "int64"),
        (np.zeros((2, 6)), {}, "ndarray"),
        (torch.zeros(2, 6).double(), {}, "float64"),
        (torch.zeros(2, 6), {"tokens": [1.5]}, "integer"),
        (torch.zeros(2, 6), {"tokens": torch.ones(9, dtype=torch.bool)}, "integer"),
        (torch.zeros(2, 6), {"tokens": ["dog"]}, "integers"),
        (torch.zeros(2, 6), {"tokens": [9]}, "9"),
        (torch.zeros(2, 6), {"locate": 5}, "integer"),
        (torch.zeros(2, 6), {"locate": torch.tensor([1.7])}, "integer"),
        (torch.zeros(2, 6), {"readouts": []}, "readouts"),
        (torch.zeros(2, 6), {"readouts": "dmrr"}, "readouts"),
    ],
)
def test_what_are_no_states_or_tokens_is_refused(states, options, message):
    lens = Lens(nn.LayerNorm(6), nn.Linear(6, 9))
    with pytest.raises(InputError, match=message):
        Reader(lens, [0], **options).read(states)


def test_tokens_may_be_any_list_of_ids_and_states_any_view():
    lens, states = Lens(nn.LayerNorm(6), nn.Linear(6, 9)), torch.randn(4, 6)
    whole = Reader(lens, [0]).read(states).sums.evidence()
    for tokens in ([7, 2], (7, 2), np.array([7, 2]), torch.tensor([7, 2], dtype=torch.int32)):
        found = Reader(lens, [0], tokens=tokens).read(states.T.contiguous().T)
        assert torch.equal(found.sums.evidence(), whole[[7, 2]])
    assert Reader(lens, [0], tokens=[]).read(states).sums.evidence().shape == (0,)


@pytest.mark.parametrize("tokens", [None, [3, 7, 900]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("readouts", [("dmrr",), ("dmrr", "prob", "zscore")])
def test_reading_evidence_never_waits_for_its_device(tokens, dtype, readouts):
    """Tensors on the meta device have no values: reading one raises, as the sum does once for the whole image."""
    with torch.device("meta"):
        norm, head = torch.nn.LayerNorm(8, dtype=dtype), torch.nn.Linear(8, 9000, bias=False, dtype=dtype)
        states = torch.zeros(70, 8, dtype=dtype)
    lens = Lens(norm, head, chunk=16)
    reading = Reader(lens, [0], tokens=tokens, locate=[1, 2], readouts=readouts).read(states)
    assert reading.located.shape == (70, 2)
    assert reading.sums.count == 70
    with pytest.raises((RuntimeError, NotImplementedError)):
        reading.sums.evidence()


def test_nan_on_an_accelerator_is_refused_once_for_the_whole_image(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    monkeypatch.setenv("REWEIGH_KERNEL", "torch")
    good, broken = torch.randn(5, 40), torch.randn(5, 40)
    broken[3, 2] = float("nan")
    clean, sums, merged = ReadoutSums(40), ReadoutSums(40), ReadoutSums(40)
    for logits in (good, broken, good):
        sums.add(logits)
    with pytest.raises(NumericsError, match="NaN"):
        sums.evidence()
    clean.add(good)
    assert clean.evidence().isfinite().all()
    merged.add(good)
    merged.merge(sums)
    with pytest.raises(NumericsError, match="NaN"):
        merged.evidence()
