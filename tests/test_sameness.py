"""The comparison that other tests rely on fails for every single bit, and only then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from sameness import assert_differ, assert_same


def generation(change=None):
    found = SimpleNamespace(
        sequences=torch.arange(6).reshape(2, 3), logits=[torch.ones(2, 4), torch.zeros(2, 4)]
    )
    if change:
        change(found)
    return found


def last_bit(found):
    found.logits[1][1, 3] = torch.nextafter(torch.tensor(0.0), torch.tensor(1.0))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (last_bit, "step 1"),
        (lambda found: found.sequences[1].fill_(9), "sequences"),
        (lambda found: found.logits.pop(), "step 1"),
        (lambda found: found.logits.append(torch.ones(2, 4)), "length"),
    ],
)
def test_any_difference_fails(change, named):
    assert_differ(generation(), generation(change))
    with pytest.raises(AssertionError, match=named):
        assert_same(generation(), generation(change))


def test_equal_generations_are_the_same():
    assert_same(generation(), generation())
    with pytest.raises(AssertionError, match="nothing"):
        assert_differ(generation(), generation())


def test_rows_restrict_the_comparison():
    assert_same(generation(), generation(last_bit), slice(0, 1))
    with pytest.raises(AssertionError, match="step 1"):
        assert_same(generation(), generation(last_bit), slice(1, 2))


def test_different_kinds_are_never_compared():
    with pytest.raises(AssertionError, match="type"):
        assert_differ(generation(), object())
