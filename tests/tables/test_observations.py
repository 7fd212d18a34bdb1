"""Observations are additive: any cut, any order, any bracketing gives the whole."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.tables.observations import (
    ImageObservations,
    collect,
    count_candidates,
    merge,
    split,
)
from sameness import assert_same

LAYERS = (1, 3)


@st.composite
def single(draw, key):
    tokens = sorted(draw(st.sets(st.integers(0, 9), max_size=5)))
    counts = draw(st.lists(st.integers(1, 4), min_size=len(tokens), max_size=len(tokens)))
    size = (len(LAYERS), len(tokens))
    quarters = draw(st.lists(st.integers(1, 4), min_size=size[0] * size[1], max_size=size[0] * size[1]))
    values = (np.array(quarters, dtype=np.float32) / 4).reshape(size)
    return ImageObservations(key, np.array(tokens, dtype=np.int64), np.array(counts, dtype=np.int64), values)


@st.composite
def shards(draw):
    """Singles, and one shard number for each."""
    keys = draw(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=6, unique=True))
    parts = [draw(single(key)) for key in keys]
    return parts, draw(st.lists(st.integers(0, 2), min_size=len(parts), max_size=len(parts)))


def some(keys=("a", "b", "c"), layers=LAYERS, seed=0):
    random = np.random.default_rng(seed)
    parts = [
        ImageObservations(
            key,
            np.array([1, 4, 7]),
            random.integers(1, 5, 3),
            random.random((len(layers), 3), dtype=np.float32),
        )
        for key in keys
    ]
    return collect(layers, parts)


@settings(max_examples=60)
@given(shards(), st.randoms())
def test_merging_is_associative_commutative_and_equal_to_the_whole(made, random):
    parts, numbers = made
    whole = collect(LAYERS, parts)
    cut = [
        collect(LAYERS, [part for part, n in zip(parts, numbers, strict=True) if n == i]) for i in range(3)
    ]
    one, two, three = random.sample(cut, 3)
    assert_same(merge([one, two, three]), whole)
    assert_same(merge([merge([one, two]), three]), whole)
    assert_same(merge([one, merge([two, three])]), whole)


@settings(max_examples=60)
@given(shards())
def test_splitting_and_collecting_are_inverse(made):
    whole = collect(LAYERS, made[0])
    assert_same(collect(LAYERS, split(whole)), whole)
    assert len(whole) == sum(int(part.count.sum()) for part in made[0])


@settings(max_examples=60)
@given(shards())
def test_only_equals_collecting_less(made):
    parts, numbers = made
    kept = [part for part, number in zip(parts, numbers, strict=True) if number]
    found = collect(LAYERS, parts).only(part.key for part in kept)
    assert_same(found, collect(LAYERS, kept))


@settings(max_examples=40)
@given(shards())
def test_observations_come_back_from_rows(made):
    parts, numbers = made
    chosen = collect(LAYERS, parts).only(
        part.key for part, number in zip(parts, numbers, strict=True) if number
    )
    rows = json.loads(json.dumps([one.to_row() for one in split(chosen)]))
    assert_same(collect(LAYERS, [ImageObservations.of_row(row, LAYERS, "x") for row in rows]), chosen)


def test_registration_of_a_layer_sees_that_layer_only():
    parts = [
        ImageObservations(f"{i}", np.array([5]), np.array([6]), np.array([[0.25], [0.75]], dtype=np.float32))
        for i in range(3)
    ]
    found = collect(LAYERS, parts)
    assert found.register(1).references.tolist() == [0.25]
    assert found.register(3).references.tolist() == [0.75]
    assert found.register(3).counts.tolist() == [18]
    with pytest.raises(InputError, match="layer 2") as caught:
        found.register(2)
    assert "calibrated" in str(caught.value)


def test_choosing_layers():
    found = some()
    assert_same(found.at([3, 1, 3]), found)
    one = found.at([3])
    assert one.layers == (3,)
    assert np.array_equal(one.values, found.values[1:])
    assert np.array_equal(one.register(3).references, found.register(3).references)
    with pytest.raises(InputError, match="layer 0"):
        found.at([0, 1])


def test_an_image_never_counts_twice():
    with pytest.raises(MismatchError, match="'b'"):
        merge([some(("a", "b")), some(("b", "c"))])


def test_shards_of_other_layers_are_refused_with_both_named():
    with pytest.raises(MismatchError, match=r"\(1, 3\)"):
        merge([some(("a",)), some(("b",), layers=(1, 2))])


def test_nothing_to_merge_and_unknown_images():
    with pytest.raises(InputError, match="merge"):
        merge([])
    with pytest.raises(InputError, match="2 images"):
        some().only(["a", "y", "x"])


@pytest.mark.parametrize("change", [{"token": None}, {"count": "%"}, {"values": "AAAA"}, {"values": 3}])
def test_rows_that_are_not_observations(change):
    row = split(some())[0].to_row()
    with pytest.raises(ArtifactError, match="whole observations"):
        ImageObservations.of_row({**row, **change}, LAYERS, "x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.full((2, 3), 1e36, np.float32)}, "outside"),
        ({"values": np.zeros((2, 3), np.float32)}, "outside"),
        ({"values": np.full((2, 3), np.nan, np.float32)}, "finite"),
        ({"count": np.array([1, 0, 2], np.int32)}, "positive"),
        ({"token": np.array([-1, 4, 7], np.int32)}, "tokens"),
        ({"token": np.array([1, 1, 7], np.int32)}, "tokens"),
        ({"image": np.array([0, 0, 2], np.int32)}, "image 3"),
        ({"token": np.array([1, 4], np.int32)}, "lengths"),
        ({"values": np.full((2, 3), 0.5)}, "types"),
        ({"images": ("b", "a")}, "images"),
    ],
)
def test_impossible_observations_have_a_problem(change, message):
    assert some(("a",)).problem() is None
    assert message in replace(some(("a",)), **change).problem()


@settings(max_examples=60)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=3, max_size=3), max_size=6))
def test_candidates_are_counted_by_step(steps):
    ids = np.array([[token for token, _ in step] for step in steps], dtype=np.int64).reshape(-1, 3)
    keep = np.array([[kept for _, kept in step] for step in steps], dtype=bool).reshape(-1, 3)
    token, count = count_candidates(ids, keep)
    expected = {}
    for step in steps:
        for one, kept in step:
            expected[one] = expected.get(one, 0) + kept
    assert dict(zip(token.tolist(), count.tolist(), strict=True)) == {t: n for t, n in expected.items() if n}
    assert token.tolist() == sorted(token.tolist())
