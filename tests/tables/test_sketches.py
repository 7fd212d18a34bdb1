"""Sketches against the observations they stand for: bounds hold, decisions are those of the exact rule, merging is exact."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reweigh.errors import ArtifactError, CalibrationError, InputError, MismatchError, UnsupportedError
from reweigh.method.references import STABILITY, AtLeast, range_index, stable
from reweigh.tables.binned import Binned, Bracket
from reweigh.tables.observations import ImageObservations, collect
from reweigh.tables.sketches import Sketches, digests, merge_sketches, require_sketchable, sketch

LAYERS = (1, 3)


def observed(images=40, tokens=6, seed=0, spread=1.0, start=0):
    """Images that show some of the tokens, with log-normal evidence."""
    dice = np.random.default_rng(seed)
    parts = []
    for number in range(start, start + images):
        token = np.flatnonzero(dice.random(tokens) < 0.8)
        values = np.exp(dice.normal(-4, spread, (len(LAYERS), len(token)))).clip(2**-16, 1)
        count = dice.integers(1, 4, len(token))
        parts.append(ImageObservations(f"{number:04d}.png", token, count, values.astype(np.float32)))
    return parts


def of(parts, most=16):
    return sketch(collect(LAYERS, parts), most=most)


def multiset(observations, layer, token):
    row = observations.layers.index(layer)
    mine = observations.token == token
    return np.sort(np.repeat(observations.values[row][mine].astype(np.float64), observations.count[mine]))


def test_few_distinct_values_are_registered_exactly():
    seen = collect(LAYERS, observed())
    exact = sketch(seen)
    for layer in LAYERS:
        for rule in (stable, AtLeast(60)):
            mine, theirs = exact.register(layer, rule=rule), seen.register(layer, rule=rule)
            assert mine.scale == theirs.scale
            for name in ("tokens", "references", "counts"):
                assert np.array_equal(getattr(mine, name), getattr(theirs, name))
            assert (
                mine.error_bounds.rank_error
                == mine.error_bounds.value_error
                == mine.error_bounds.scale_error
                == 0
            )
            assert mine.error_bounds.undecided == ()


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([0.05, 0.3, 1.0, 2.0]), st.integers(0, 23))
def test_order_statistics_and_their_ranks_lie_within_their_bounds(seed, spread, bits):
    seen = collect(LAYERS, observed(seed=seed, spread=spread))
    made = sketch(seen, most=16).with_bits(bits)
    for layer in LAYERS:
        for token, binned in made.tokens(layer):
            values = multiset(seen, layer, token)
            n = len(values)
            assert len(binned) == n
            for rank in {1, (n + 1) // 2, n // 2 + 1, n}:
                found = binned.order_statistic(rank)
                assert found.low <= values[rank - 1] <= found.high
                assert found.low <= found.value <= found.high
            reference, median = binned.median(), np.median(values)
            assert abs(reference.value - median) <= reference.error * reference.value * (1 + 1e-12)
            bound = binned.rank_error() * n + 1e-9
            below, through = (values < reference.value).sum(), (values <= reference.value).sum()
            assert binned.rank_error() == 0 or (below - bound <= n / 2 <= through + bound)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([0.01, 0.05, 0.3, 1.0]), st.integers(0, 23), st.integers(8, 60))
def test_a_decision_is_that_of_the_exact_rule_and_de_lies_between_its_bounds(seed, spread, bits, images):
    seen = collect(LAYERS, observed(seed=seed, spread=spread, images=images))
    made = sketch(seen, most=16).with_bits(bits)
    for layer in LAYERS:
        scale = made.scale(layer) if bits else None
        theirs = seen.register(layer)
        mine = made.register(layer)
        assert set(mine.tokens) <= set(theirs.tokens)
        assert set(theirs.tokens) <= {*mine.tokens, *mine.error_bounds.undecided}
        assert abs(mine.scale - theirs.scale) <= mine.error_bounds.scale_error * mine.scale * (1 + 1e-12)
        shared, one, other = np.intersect1d(mine.tokens, theirs.tokens, return_indices=True)
        apart = np.abs(mine.references[one] - theirs.references[other])
        assert (apart <= mine.error_bounds.value_error * mine.references[one] * (1 + 1e-12)).all()
        assert np.array_equal(mine.counts[one], theirs.counts[other])
        for token, binned in made.tokens(layer):
            k = range_index(len(binned))
            if k is not None and scale is not None:
                low, high = binned.variation(k, scale)
                assert low <= twin_variation(multiset(seen, layer, token), k, theirs.scale) <= high
        assert len(shared) == len(mine.tokens)


def twin_variation(values, k, scale):
    """De in whole fractions."""

    def edit(reference, x):
        return min(max((Fraction(reference) - Fraction(x)) / Fraction(scale), Fraction(0)), Fraction(1))

    low, high = values[k - 1], values[len(values) - k]
    return float(sum(abs(edit(high, x) - edit(low, x)) for x in values) / len(values))


@st.composite
def bins_with_values(draw):
    """Disjoint bins, some of a single value, with the values they hide."""
    ends = sorted(draw(st.lists(st.integers(1, 200), min_size=4, max_size=12, unique=True)))
    low, high, values = [], [], []
    for left, end in zip(ends[::2], ends[1::2], strict=False):
        right = draw(st.sampled_from([left, end]))
        low.append(left)
        high.append(right)
        values.append(sorted(draw(st.lists(st.integers(left, right), min_size=1, max_size=8))))
    seen = Binned(np.array(low) / 200, np.array(high) / 200, np.array([len(one) for one in values]))
    return seen, np.array([value for one in values for value in one]) / 200


EXAMPLE = (
    Binned(np.array([0.3, 0.5, 0.55]), np.array([0.49, 0.5, 0.55]), np.array([2, 5, 5])),
    np.array([0.47] * 2 + [0.5] * 5 + [0.55] * 5),
)


@settings(max_examples=100)
@example(EXAMPLE, (0.1, 0.1), 0.1, 0.1)
@example(EXAMPLE, (0.1, 0.2), 0.1, 0.2)
@example(EXAMPLE, (0.1, 0.2), 0.2, 0.1)
@given(bins_with_values(), st.tuples(*[st.floats(0.005, 0.5)] * 2), st.floats(0, 1), st.floats(0, 1))
def test_de_lies_between_its_bounds_whatever_the_bins_hide(made, ends, value, true):
    seen, values = made
    low, high = sorted(ends)
    k = range_index(len(values))
    if k is not None:
        scale = Bracket(low, min(max(value, low), high), high)
        least, most = seen.variation(k, scale)
        assert least <= twin_variation(values, k, min(max(true, low), high)) <= most


def test_a_token_of_which_de_cannot_be_told_is_refused_by_name():
    # all of it between 0.5 and 0.5625, one bin of three bits, which is many times b0 wide
    high = np.linspace(0.5, 0.56, 64, dtype=np.float32)
    parts = [
        ImageObservations(
            f"{i:04d}", np.array([1, 2]), np.array([1, 4]), np.array([[value, 0.001]], np.float32)
        )
        for i, value in enumerate(high)
    ]
    seen = collect((1,), parts)
    made = sketch(seen, most=16).with_bits(3)
    found = made.register(1)
    assert found.error_bounds.undecided == (1,)
    assert found.tokens.tolist() == [2]
    assert made.register(1, rule=AtLeast(10)).tokens.tolist() == [1, 2]
    with pytest.raises(InputError, match="sketches"):
        made.register(1, rule=lambda ordered, scale: True)
    assert STABILITY == 0.5


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 4), st.randoms())
def test_shards_merge_to_the_whole_in_any_order(seed, cuts, random):
    parts = observed(seed=seed)
    whole = of(parts)
    shards = [parts[i::cuts] for i in range(cuts)]
    random.shuffle(shards)
    merged = merge_sketches(map(of, shards))
    assert merged.equals(whole)
    assert merged.corpus == whole.corpus
    assert merged.problem() is None
    assert len(merged) == len(collect(LAYERS, parts))
    assert merged.holds(part.key for part in parts)
    assert not merged.holds(part.key for part in parts[1:])


def test_memory_is_bounded_by_the_bins():
    made = merge_sketches(of(observed(images=100, seed=i, start=100 * i)) for i in range(8))
    tokens = made.bins.owner % 2**32 > 0
    assert (made.bins.size[tokens] <= 16).all()
    assert (made.bins.shift[tokens] > 0).all()
    assert made.image_count == 800


def test_layers_are_taken_apart():
    parts = observed()
    whole, seen = of(parts), collect(LAYERS, parts)
    assert whole.at([3]).equals(sketch(seen.at([3]), most=16))
    assert whole.at(LAYERS).equals(whole)
    with pytest.raises(InputError, match="layer 2"):
        whole.register(2)


def test_shards_that_do_not_go_together_are_refused():
    one, other = of(observed()), of(observed(start=100))
    for changed, message in (
        (of(observed(start=100), most=32), "bins"),
        (replace(other, layers=(1, 2)), "layers"),
        (replace(other, readout="prob"), "readouts"),
        (of(observed(start=39)), "two shards"),
    ):
        with pytest.raises(MismatchError, match=message):
            merge_sketches([one, changed])
    with pytest.raises(InputError, match="merge"):
        merge_sketches([])


def test_what_cannot_be_sketched_is_refused():
    with pytest.raises(UnsupportedError, match="zscore"):
        require_sketchable("zscore", 64)
    for bins in (15, 2**16 + 1):
        with pytest.raises(InputError, match="65,536"):
            require_sketchable("dmrr", bins)


def test_a_scale_that_may_be_zero_is_refused():
    tiny = collect(
        (1,), [ImageObservations("a", np.array([1]), np.array([9]), np.array([[1e-38]], np.float32))]
    )
    made = sketch(tiny, most=16)
    wide = replace(made, bins=replace(made.bins, shift=np.full(2, 30, np.uint8), edge=np.zeros(2, np.uint32)))
    with pytest.raises(CalibrationError, match="between"):
        wide.register(1)


def test_images_that_show_nothing_are_refused():
    none = [
        ImageObservations("a", np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((2, 0), np.float32))
    ]
    made = of(none)
    assert (made.problem(), len(made), made.image_count) == (None, 0, 1)
    assert merge_sketches([made, of(observed())]).image_count == 41
    with pytest.raises(CalibrationError, match="observation"):
        made.register(1)


def test_sketches_come_back_from_their_file(tmp_path):
    made = of(observed())
    made.save(tmp_path / "a.safetensors")
    assert Sketches.load(tmp_path / "a.safetensors", most=16).equals(made)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: {"images": made.images[::-1]}, "images"),
        (lambda made: {"images": made.images[:, :8]}, "digests"),
        (lambda made: {"layers": (1,)}, "layers"),
        (lambda made: {"most": 8}, "bins"),
        (
            lambda made: {"bins": replace(made.bins, edge=made.bins.edge | np.uint32(1 << 31))},
            "outside",
        ),
        (
            lambda made: {
                "bins": replace(made.bins, count=made.bins.count + (np.arange(len(made.bins.count)) == 0))
            },
            "union",
        ),
    ],
)
def test_numbers_that_cannot_be_sketches_are_refused(tmp_path, change, message):
    made = of(observed())
    broken = replace(made, **change(made))
    broken.save(tmp_path / "a.safetensors")
    with pytest.raises(ArtifactError, match=message):
        Sketches.load(tmp_path / "a.safetensors", most=broken.most)


def test_digests_are_ordered_and_unique():
    found = digests(["b", "a", "c"])
    assert found.shape == (3, 16)
    assert [row.tobytes() for row in found] == sorted(row.tobytes() for row in found)
    with pytest.raises(MismatchError, match="two shards"):
        digests(["a", "a"])


def test_the_error_of_a_number_is_its_largest_distance():
    assert Bracket(1.0, 2.0, 2.5).error == 0.5
    assert Binned(np.array([0.5]), np.array([0.5]), np.array([3])).rank_error() == 0
