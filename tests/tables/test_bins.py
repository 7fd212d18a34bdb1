"""Counted bins against a multiset in a Counter: what is left depends on the values alone, and on no order of merging."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.tables.bins import ARRAYS, count_bins, drop_bits, merge_bins

LIMIT = 4
VALUES = st.floats(2**-20, 1.0, width=32) | st.sampled_from([0.25, 0.5, 0.5000001, 0.75, 1.0])
ROWS = st.lists(st.tuples(st.integers(0, 3), VALUES, st.integers(1, 5)), max_size=40)


def limit(owners):
    return np.full(len(owners), LIMIT)


def bins(rows, limit=limit):
    owner, values, count = ([row[i] for row in rows] for i in range(3))
    return count_bins(
        np.array(owner, np.int64), np.array(values, np.float32), np.array(count, np.int64), limit
    )


def twin(rows, most=LIMIT):
    """Owner -> dropped bits and Counter of edges, by trying every number of bits."""
    found = {}
    for owner in sorted({row[0] for row in rows}):
        mine = [(int(np.float32(value).view(np.uint32)), count) for one, value, count in rows if one == owner]
        for shift in range(33):
            counted = Counter()
            for pattern, count in mine:
                counted[pattern >> shift << shift] += count
            if len(counted) <= most:
                found[owner] = shift, dict(counted)
                break
    return found


def as_dict(made):
    ends = np.cumsum(made.size)
    return {
        int(owner): (
            int(shift),
            dict(
                zip(made.edge[end - size : end].tolist(), made.count[end - size : end].tolist(), strict=True)
            ),
        )
        for owner, shift, size, end in zip(made.owner, made.shift, made.size, ends, strict=True)
    }


@settings(max_examples=100)
@given(ROWS)
def test_bins_are_the_finest_that_the_limit_allows(rows):
    made = bins(rows)
    assert as_dict(made) == twin(rows)
    assert made.problem(limit) is None


@settings(max_examples=60)
@given(ROWS, st.integers(1, 5), st.randoms())
def test_merging_in_any_order_and_bracketing_gives_the_bins_of_the_whole(rows, cuts, random):
    whole = bins(rows)
    parts = [[] for _ in range(cuts)]
    for row in rows:
        random.choice(parts).append(row)
    nodes = [bins(part) for part in parts]
    assert merge_bins(nodes, limit).equals(whole)
    while len(nodes) > 1:
        random.shuffle(nodes)
        nodes.append(merge_bins([nodes.pop(), nodes.pop()], limit))
    assert nodes[0].equals(whole)


@settings(max_examples=50)
@given(ROWS, st.integers(0, 23))
def test_dropping_bits_drops_them_of_all_owners(rows, least):
    whole = bins(rows)
    made = drop_bits(whole, np.full(len(whole), least), limit)
    assert made.problem(limit) is None
    assert (made.shift >= least).all()
    assert made.count.sum() == sum(count for *_, count in rows)
    assert as_dict(made) == {
        owner: (max(shift, least), dict(_coarse(counted, max(shift, least))))
        for owner, (shift, counted) in twin(rows).items()
    }


def _coarse(counted, shift):
    found = Counter()
    for edge, count in counted.items():
        found[edge >> shift << shift] += count
    return found


GOOD = bins([(0, 0.5, 2), (0, 0.25, 1), (2, 0.125, 3)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": np.array([1, 0, 3])}, "count is not positive"),
        ({"count": np.array([1, 2])}, "different lengths"),
        ({"size": np.array([1, 1])}, "different lengths"),
        ({"size": np.array([3, 0])}, "different lengths"),
        ({"owner": np.array([2, 0])}, "owners are not in order"),
        ({"shift": np.array([0, 40], np.uint8)}, "owners are not in order"),
        ({"edge": GOOD.edge[[1, 0, 2]]}, "bins are not in order"),
        (
            {"edge": GOOD.edge + np.uint32(1), "shift": np.array([2, 2], np.uint8)},
            "edge its owner's bits allow",
        ),
        ({"edge": GOOD.edge.astype(np.int64)}, "other types"),
    ],
)
def test_arrays_that_cannot_be_bins_are_told(change, message):
    assert GOOD.problem(limit) is None
    assert message in replace(GOOD, **change).problem(limit)
    assert set(change) <= set(ARRAYS)


def test_more_bins_than_the_limit_are_told():
    assert "more bins" in GOOD.problem(lambda owners: np.ones(len(owners), np.int64))
