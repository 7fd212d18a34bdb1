"""Strength and edit: the paper's mechanism table, twins, and bounds that hold for any input."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import InputError, NumericsError
from reweigh.method.edit import StepEditor, candidates, check_beta, check_betas, spread
from reweigh.method.references import strength

pytestmark = pytest.mark.numerics

# Step 71 of LLaVA-1.5 as the paper prints it: z, DMRR e-3, b e-3, deficit e-3, s, beta s, z'.
MECHANISM = {
    "cars": (17.000, 0.758, 8.321, 7.563, 1.000, 1.100, 15.900),
    "people": (16.359, 2.225, 6.128, 3.903, 1.000, 1.100, 15.259),
    "traffic": (16.344, 40.513, 6.984, 0.000, 0.000, 0.000, 16.344),
    "p": (15.891, 7.390, 23.583, 16.192, 1.000, 1.100, 14.791),
    "pal": (15.703, 72.867, 124.762, 51.895, 1.000, 1.100, 14.603),
    "stop": (15.063, 10.986, 5.882, 0.000, 0.000, 0.000, 15.063),
    "ped": (15.039, 4.393, 4.743, 0.350, 0.108, 0.119, 14.920),
    "clock": (14.953, 0.760, 7.693, 6.933, 1.000, 1.100, 13.853),
}
B0, BETA = 0.00324809, 1.1
LOGITS = st.floats(-30, 30, width=32)


def columns():
    return [torch.tensor(column) for column in zip(*MECHANISM.values(), strict=True)]


@pytest.fixture(params=["cpu", "accelerator"])
def path(request, monkeypatch):
    """Run a test as on the CPU, and as on an accelerator, whose values are not looked at."""
    if request.param == "accelerator":
        monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    return request.param


def edit_step(logits, strengths, beta, *, rows=None):
    return StepEditor(strengths, torch.as_tensor(beta), rows).step(logits)


def printed(values, digits=3):
    return [f"{value:.{digits}f}" for value in values.tolist()]


def test_the_papers_mechanism_table_to_its_printed_digits(path):
    z, dmrr, b, short, s, shift, after = columns()
    evidence, reference = dmrr.double() / 1000, b.double() / 1000
    # the paper subtracts before it rounds: of its own printed digits 23.583 - 7.390 is 16.193, not 16.192
    rounded = {"p": "16.193"}
    expected = [rounded.get(name, digits) for name, digits in zip(MECHANISM, printed(short), strict=True)]
    assert printed((reference - evidence).clamp_min(0) * 1000) == expected
    found = strength(reference, evidence, B0)
    assert printed(found) == printed(s)
    laid_out = spread(found[None].float(), torch.arange(8), 8)
    found = edit_step(z[None], laid_out, BETA)
    own = found.candidates.keep[0]
    ids = found.candidates.ids[0][own]
    assert printed(found.shifts[0][own]) == printed(shift[ids])
    assert printed(found.logits[0, ids]) == printed(after[ids])
    assert {"cars", "people", "traffic", "p", "pal"} <= {list(MECHANISM)[i] for i in ids.tolist()}
    edited = found.logits
    names = list(MECHANISM)
    assert names[int(z.argmax())] == "cars"
    assert names[int(edited.argmax())] == "traffic"


def test_the_mechanism_table_through_the_candidate_rule(path):
    """With the eight tokens among a wide vocabulary, float32 throughout, as the decoder does it."""
    z, dmrr, b, _, _, _, after = columns()
    vocab, places = 100, torch.tensor([90, 3, 55, 8, 41, 77, 12, 60])
    logits = torch.full((1, vocab), -20.0)
    logits[0, places] = z
    order = places.argsort()
    tokens = places[order]
    strengths = spread(strength(b[order] / 1000, dmrr[order] / 1000, B0)[None], tokens, vocab)
    chosen = candidates(logits)
    assert set(places[:6].tolist()) <= set(chosen.ids[chosen.keep].tolist())
    before = logits.clone()
    edited = edit_step(logits, strengths, BETA).logits
    kept = torch.isin(places, chosen.ids[chosen.keep])
    assert printed(edited[0, places[kept]]) == printed(after[kept])
    assert torch.equal(edited[0, places[~kept]], before[0, places[~kept]])
    assert int(edited.argmax()) == 55


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.floats(2**-20, 1, width=32), st.floats(2**-20, 1, width=32)), min_size=1, max_size=20
    ),
    st.floats(2**-20, 1, width=32),
)
def test_strength_equals_a_plain_clip_and_the_registered_edit(pairs, scale):
    b, x = (torch.tensor(column) for column in zip(*pairs, strict=True))
    found = strength(b, x, scale)
    assert found.dtype == torch.float32
    assert ((found >= 0) & (found <= 1)).all()
    for mine, (reference, evidence) in zip(found.tolist(), pairs, strict=True):
        plain = min(max((reference - evidence) / scale, 0.0), 1.0)
        assert mine == pytest.approx(plain, rel=1e-5, abs=1e-6)
        assert float(strength(reference, np.array(evidence), scale)) == plain


@st.composite
def steps(draw):
    """Logits with ties, strengths of some tokens, beta."""
    vocab, rows = draw(st.integers(2, 12)), draw(st.integers(1, 3))
    pool = draw(st.lists(LOGITS, min_size=1, max_size=4))
    flat = draw(st.lists(st.sampled_from(pool) | LOGITS, min_size=rows * vocab, max_size=rows * vocab))
    logits = torch.tensor(flat).reshape(rows, vocab)
    tokens = sorted(draw(st.sets(st.integers(0, vocab - 1))))
    values = draw(
        st.lists(st.floats(0, 1, width=32), min_size=rows * len(tokens), max_size=rows * len(tokens))
    )
    strengths = spread(
        torch.tensor(values).reshape(rows, len(tokens)), torch.tensor(tokens, dtype=torch.long), vocab
    )
    return logits, tokens, strengths, draw(st.floats(0, 5, width=32))


@settings(max_examples=60)
@given(steps())
def test_the_edit_only_lowers_candidates_that_are_registered_by_at_most_beta(step):
    logits, tokens, strengths, beta = step
    before = logits.clone()
    step = edit_step(logits, strengths, beta)
    chosen, edited = step.candidates, step.logits
    assert ((step.shifts >= 0) & (step.shifts <= beta)).all()
    assert torch.equal(logits, before)
    for row in range(len(before)):
        kept = set(chosen.ids[row][chosen.keep[row]].tolist())
        for token in range(before.shape[1]):
            z, after = float(before[row, token]), float(edited[row, token])
            if token not in kept or token not in tokens:
                assert (after, math.copysign(1, after)) == (z, math.copysign(1, z))
            else:
                assert after == float(np.float32(z) - np.float32(strengths[row, token]) * np.float32(beta))
                assert float(np.float32(z) - np.float32(beta)) <= after <= z  # rounding keeps the order


@settings(max_examples=60)
@given(steps())
def test_beta_zero_is_the_identity_bit_for_bit(step):
    logits, _, strengths, _ = step
    edited = edit_step(logits, strengths, check_beta(0)).logits
    assert torch.equal(edited.view(torch.int32), logits.view(torch.int32))


@settings(max_examples=60)
@given(steps(), st.data())
def test_each_row_has_its_own_beta_and_other_rows_are_not_looked_at(step, data):
    logits, _, strengths, beta = step
    chosen = sorted(data.draw(st.sets(st.integers(0, len(logits) - 1), min_size=1)))
    betas = torch.tensor([beta * data.draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in chosen])
    broken = logits.clone()
    for row in set(range(len(logits))) - set(chosen):
        broken[row, 0] = math.nan
    rows = None if len(chosen) == len(logits) else torch.tensor(chosen)
    together = edit_step(broken, strengths[chosen], betas, rows=rows)
    for n, row in enumerate(chosen):
        alone = edit_step(logits[row : row + 1], strengths[row : row + 1], float(betas[n]))
        assert torch.equal(together.logits[row], alone.logits[0])
        assert torch.equal(together.shifts[n], alone.shifts[0])
    others = [row for row in range(len(logits)) if row not in chosen]
    assert torch.equal(together.logits[others].view(torch.int32), broken[others].view(torch.int32))


def test_minus_infinity_stays_itself(path):
    logits = torch.tensor([[1.0, -math.inf, 0.5, -math.inf]])
    edited = edit_step(logits, torch.ones(1, 4), 1.0).logits
    assert edited.tolist() == [[0.0, -math.inf, -0.5, -math.inf]]


def test_nan_in_logits_is_refused():
    logits = torch.zeros(2, 6)
    logits[1, 3] = math.nan
    with pytest.raises(NumericsError, match=r"row 1 .*NaN"):
        edit_step(logits, torch.zeros(2, 6), 1.0)


def test_half_precision_logits_are_edited_in_float32_from_their_own_values(path):
    logits = torch.randn(2, 60).bfloat16()
    chosen = candidates(logits)
    edited = edit_step(logits, torch.full((2, 60), 0.3), 1.0).logits
    expected = logits.float()
    for row in range(2):
        expected[row, chosen.ids[row][chosen.keep[row]]] -= torch.tensor(0.3)
    assert edited.dtype == torch.float32
    assert torch.equal(edited, expected)


def test_the_given_logits_are_never_written_to(path):
    for logits in (torch.randn(1, 8), torch.randn(1, 8, requires_grad=True), torch.randn(1, 8).bfloat16()):
        kept = logits.detach().clone()
        edited = edit_step(logits, torch.ones(1, 8), 1.0).logits
        assert torch.equal(logits.detach(), kept)
        assert not torch.equal(edited.detach(), kept.float())
        assert edited.requires_grad == logits.requires_grad


def test_spread_lays_out_by_token_id():
    laid_out = spread(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 3]), 5)
    assert laid_out.tolist() == [[1, 0, 0, 2, 0], [3, 0, 0, 4, 0]]
    assert spread(torch.zeros(2, 0), torch.tensor([], dtype=torch.long), 3).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize(
    "beta", [-0.1, -1e-300, math.nan, math.inf, -math.inf, "1.1", None, True, [1], 1e39, 10**400]
)
def test_beta_that_is_not_a_bound_is_refused(beta):
    with pytest.raises(InputError, match="finite"):
        check_beta(beta)


@pytest.mark.parametrize("beta", [0, 0.0, 1, 1.1, np.float32(0.5), np.float64(0.5), np.int64(2)])
def test_beta_of_any_number_type(beta):
    assert check_beta(beta) == float(beta)
    assert type(check_beta(beta)) is float


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [None, [0, 2]])
def test_the_logits_alone_have_the_bits_of_the_whole_step(dtype, rows):
    random = torch.Generator().manual_seed(3)
    logits = (torch.randn(3, 200, generator=random) * 3).to(dtype)
    count = 3 if rows is None else len(rows)
    strengths, betas = torch.rand(count, 200, generator=random), torch.tensor([1.1, 0.0, 0.4])[:count]
    editor = StepEditor(strengths, betas, None if rows is None else torch.tensor(rows))
    before, step = logits.clone(), editor.step(logits)
    assert torch.equal(editor(logits), step.logits)
    assert torch.equal(logits, before)
    assert not torch.equal(step.logits[0], logits[0].float())
    logits[0] = float("nan")
    with pytest.raises(NumericsError, match="distribution"):
        editor(logits)


def test_a_copied_editor_reads_its_own_memory():
    """A copied key-value cache copies the editor, and may outlive the one it was copied from."""
    logits = torch.randn(2, 40, generator=torch.Generator().manual_seed(0))
    strengths = torch.rand(2, 40, generator=torch.Generator().manual_seed(1))
    original = StepEditor(strengths, torch.tensor([1.0, 2.0]))
    expected = original(logits)
    copied = copy.deepcopy(original)
    original.strengths.zero_()
    torch.testing.assert_close(copied(logits), expected, rtol=0, atol=0)
    torch.testing.assert_close(copied.step(logits).logits, expected, rtol=0, atol=0)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shape", [(2, 6), (2, 3), (1, 4)])
def test_logits_of_another_shape_are_refused(shape, whole):
    editor = StepEditor(torch.ones(2, 4), torch.ones(2))
    with pytest.raises(InputError, match="strengths"):
        (editor.step if whole else editor)(torch.zeros(shape))


GOOD = {"logits": torch.zeros(2, 4), "strengths": torch.ones(2, 4), "beta": 1.0, "rows": None}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"logits": torch.zeros(4)}, "logits"),
        ({"logits": torch.zeros(2, 1, 4)}, "logits"),
        ({"logits": torch.zeros(3, 4)}, "belong"),
        ({"logits": torch.zeros(2, 4, dtype=torch.long)}, "belong"),
        ({"logits": torch.zeros(2, 4, device="meta")}, "belong"),
        ({"strengths": torch.ones(4)}, "strengths"),
        ({"strengths": torch.ones(1, 4)}, "belong"),
        ({"beta": torch.ones(3)}, "betas"),
        ({"beta": torch.ones(2, 1)}, "betas"),
        ({"rows": torch.tensor([0])}, "2 rows"),
        ({"rows": torch.tensor([True, True])}, "bool"),
        ({"rows": torch.tensor([-1, 0])}, "ascend"),
        ({"rows": torch.tensor([1, 1])}, "ascend"),
        ({"rows": torch.tensor([0, 2])}, "belong"),
    ],
)
def test_what_cannot_be_a_step_is_refused_before_anything_is_computed(wrong, message):
    with pytest.raises(InputError, match=message):
        edit_step(**{**GOOD, **wrong})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_strengths_that_are_not_numbers_are_refused(value):
    strengths = torch.ones(2, 4)
    strengths[1, 2] = value
    with pytest.raises(NumericsError, match="1 of 8"):
        edit_step(torch.zeros(2, 4), strengths, 1.0)


@pytest.mark.parametrize("betas", [[0.5, 2], (0.5, 2), np.array([0.5, 2]), torch.tensor([0.5, 2])])
def test_betas_may_be_any_list_of_numbers(betas):
    assert check_betas(betas) == (0.5, 2.0)


@pytest.mark.parametrize("betas", [[1.0, -1.0], [True], "1.1", torch.tensor([math.inf, 1.0])])
def test_one_impossible_beta_of_several_is_refused(betas):
    with pytest.raises(InputError, match="finite"):
        check_betas(betas)


def test_nothing_to_edit_edits_nothing():
    logits = torch.randn(2, 9)
    editor = StepEditor(torch.zeros(0, 9), torch.zeros(1), torch.tensor([], dtype=torch.long))
    torch.testing.assert_close(editor(logits), logits, rtol=0, atol=0)


def test_strengths_that_learn_get_their_gradient(path):
    strengths = torch.full((1, 4), 0.5, requires_grad=True)
    edit_step(torch.zeros(1, 4), strengths, 2.0).logits.sum().backward()
    assert strengths.grad.tolist() == [[-2.0] * 4]


def test_one_beta_serves_all_rows():
    logits, strengths = torch.zeros(3, 5), torch.ones(3, 5)
    one = StepEditor(strengths, torch.tensor([0.5]))
    torch.testing.assert_close(one(logits), StepEditor(strengths, torch.full((3,), 0.5))(logits))
    torch.testing.assert_close(one.step(logits).logits, one(logits))
