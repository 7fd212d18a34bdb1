"""Each rule equals a NumPy twin written row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.rivals.code import bounded_contrast
from reweigh.rivals.deco import keep_prefix
from reweigh.rivals.tools.contrast import contrasted, keep_ratio, mix
from reweigh.rivals.tools.layers import reversed_js

values = st.integers(-8, 8).map(float)  # few values, so that ties are common
rows = st.integers(1, 3).flatmap(
    lambda n: st.integers(1, 7).flatmap(
        lambda v: st.lists(st.lists(values, min_size=v, max_size=v), min_size=n, max_size=n)
    )
)
fast = settings(max_examples=60)


def log_softmax(row):
    return row - row.max() - math.log(np.exp(row - row.max()).sum())


def kept(row, ratio):
    low = row.max() + (math.log(ratio) if ratio else -math.inf)
    return [not value < low for value in row]


@fast
@given(rows, st.sampled_from([0.0, 1e-5, 0.1, 0.2, 1.0]))
def test_keep_ratio(table, ratio):
    table = np.array(table)
    found = keep_ratio(torch.tensor(table), ratio).numpy()
    assert found.tolist() == [kept(row, ratio) for row in table]


def test_a_token_exactly_on_the_cut_stays():
    ratio = math.exp(-2)
    logits = torch.tensor([[3.0, 1.0, 0.999]], dtype=torch.float64)
    cut = torch.log(torch.tensor(ratio, dtype=torch.float64)) + 3.0
    logits[0, 1] = cut
    assert keep_ratio(logits, ratio).tolist() == [[True, True, False]]


def test_ratio_one_leaves_the_best_and_its_ties():
    assert keep_ratio(torch.tensor([[1.0, 2.0, 2.0], [0.0, -1.0, 5.0]]), 1.0).tolist() == [
        [False, True, True],
        [False, False, True],
    ]


@fast
@given(rows, st.sampled_from([0.3, 0.9, 1.0]), st.integers(1, 3), st.integers(3, 20))
def test_keep_prefix(table, mass, least, most):
    table = np.array(table)
    found = keep_prefix(torch.tensor(table, dtype=torch.float32), mass, least, most).numpy()
    for row, mask in zip(table, found, strict=True):
        share = np.exp(log_softmax(row.astype(np.float64)))
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        size, total = 0, 0.0
        while size < len(row) and (total < mass - 1e-6):
            total += share[order[size]]
            size += 1
        size = min(max(size, least), most, len(row))
        assert mask.sum() == size or abs(total - mass) < 1e-5
        assert set(np.flatnonzero(mask)) == set(order[: mask.sum()])


@fast
@given(rows, st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.1, 1.0]), st.booleans(), st.randoms())
def test_contrast(table, alpha, ratio, log_space, random):
    main = np.array(table)
    reference = np.array([[random.uniform(-5, 5) for _ in row] for row in table])
    found = contrasted(torch.tensor(main), torch.tensor(reference), alpha, ratio, log_space=log_space).numpy()
    for row, other, y in zip(main, reference, found, strict=True):
        keep = kept(row, ratio)
        a, r = (log_softmax(row), log_softmax(other)) if log_space else (row, other)
        wanted = [(1 + alpha) * a[i] - alpha * r[i] if keep[i] else -math.inf for i in range(len(row))]
        np.testing.assert_allclose(y, wanted, atol=1e-9)


@fast
@given(rows, st.sampled_from([0.0, 0.2, 0.7, 1.0, 2.5]), st.randoms())
def test_bounded_contrast(table, power, random):
    """Weight and cut of each row by itself, with ties in the main row."""
    main = np.array(table)
    reference = np.array([[random.uniform(-5, 5) for _ in row] for row in table])
    found = bounded_contrast(torch.tensor(main), torch.tensor(reference), power).numpy()
    for a, r, y in zip(main, reference, found, strict=True):
        p, q = np.exp(log_softmax(a)), np.exp(log_softmax(r))
        apart = 0.5 * sum((p[v] + q[v]) * math.log2(1 + abs(p[v] - q[v]) ** power) for v in range(len(a)))
        assert -1e-12 <= apart <= 1 + 1e-12
        for v in range(len(a)):
            if abs(p[v] - apart * p.max()) < 1e-12:
                continue  # on the cut but for rounding
            wanted = (2 - apart) * a[v] - (1 - apart) * r[v] if p[v] > apart * p.max() else -math.inf
            assert y[v] == wanted or abs(y[v] - wanted) < 1e-9


def test_bounded_contrast_of_equal_rows_is_the_row_bit_for_bit():
    main = torch.randn(3, 50)
    assert torch.equal(bounded_contrast(main, main.clone(), 0.7), main)


def test_bounded_contrast_of_disjoint_rows_leaves_the_best_and_its_ties():
    main = torch.tensor([[200.0, 200.0, 0.0], [0.0, 0.0, 300.0]])
    reference = torch.tensor([[0.0, 0.0, 300.0], [300.0, 0.0, 0.0]])
    assert bounded_contrast(main[1:], reference[1:], 0.7).tolist() == [[-math.inf, -math.inf, 300.0]]
    kept = bounded_contrast(main, reference, 1.0) > -math.inf
    assert kept.tolist() == [[True, True, False], [False, False, True]]


def test_rows_may_have_weights_and_cuts_of_their_own():
    main, reference = torch.randn(2, 3, 20, generator=torch.Generator().manual_seed(0))
    alphas, ratios = torch.tensor([[0.0], [1.0], [2.5]]), torch.tensor([[0.0], [0.1], [1.0]])
    for log_space in (False, True):
        found = contrasted(main, reference, alphas, ratios, log_space=log_space)
        for row in range(3):
            own = main[row], reference[row], float(alphas[row]), float(ratios[row])
            assert torch.equal(found[row], contrasted(*own, log_space=log_space))
    both = bounded_contrast(main, reference, 0.7)
    for row in range(3):
        torch.testing.assert_close(both[row], bounded_contrast(main[row], reference[row], 0.7))


@pytest.mark.parametrize("ratio", [0.0, 0.1])
def test_a_token_that_the_main_pass_rules_out_stays_out(ratio):
    main = torch.tensor([[1.0, -math.inf, 0.5], [-math.inf, 2.0, 1.0]])
    reference = torch.tensor([[0.0, -math.inf, 0.0], [1.0, 1.0, 1.0]])
    found = [contrasted(main, reference, 1.0, ratio, log_space=log_space) for log_space in (False, True)]
    found += [bounded_contrast(main, reference, 0.7), bounded_contrast(main, main.clone(), 0.7)]
    for one in found:
        assert not one.isnan().any()
        assert one.isneginf()[[0, 1], [1, 0]].all()


def test_mix_with_a_single_survivor():
    keep = torch.tensor([[False, True], [True, False]])
    y = mix(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(2, 2), 2.0, -1.0, keep)
    assert y.tolist() == [[-math.inf, 3.0], [5.0, -math.inf]]


@fast
@given(rows, st.randoms())
def test_reversed_js(table, random):
    first = np.array([log_softmax(np.array(row)) for row in table])
    second = np.array([log_softmax(np.array([random.uniform(-5, 5) for _ in row])) for row in table])
    found = reversed_js(torch.tensor(first), torch.tensor(second)).numpy()
    for p, q, d in zip(first, second, found, strict=True):
        m = (np.exp(p) + np.exp(q)) / 2
        wanted = 0.5 * (np.mean(m * (np.log(m) - p)) + np.mean(m * (np.log(m) - q)))
        assert abs(d - wanted) < 1e-12


def test_reversed_js_of_impossible_tokens_is_finite():
    log_p = torch.tensor([[0.0, -math.inf, -math.inf]])
    log_q = torch.log(torch.tensor([[0.5, 0.5, 0.0]]))
    assert reversed_js(log_p, log_p).item() == 0
    assert not math.isnan(reversed_js(log_p, log_q).item())


def test_the_reversed_divergence_can_choose_another_layer_than_the_textbook():
    torch.manual_seed(0)
    differ = 0
    for _ in range(200):
        final, early = torch.randn(1, 6).mul(4).log_softmax(-1), torch.randn(3, 6).mul(4).log_softmax(-1)
        p, q = final.exp(), early.exp()
        m = (p + q) / 2
        book = 0.5 * ((p * (final - m.log())).sum(-1) + (q * (early - m.log())).sum(-1))
        differ += int(book.argmax() != reversed_js(final, early).argmax())
    assert differ > 0
