"""The matched scale: against a scan by brute force, planted answers, and what is told where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.errors import CalibrationError
from reweigh.method.matching import Profile, match_scale, mean_edit
from reweigh.method.readouts import READOUTS
from reweigh.method.references import Match, range_index, register, rule_named
from reweigh.tables.observations import ImageObservations, collect


def observations(seed, tokens=12, images=40):
    """Tokens with a level and a spread of their own, seen a few times in each image."""
    random = np.random.default_rng(seed)
    level, width = random.normal(-9, 2, tokens), random.uniform(0.2, 2, tokens)
    token = np.tile(np.arange(tokens), images)
    value = (level[token] + width[token] * random.normal(size=len(token))).astype(np.float32)
    return token, value, random.integers(1, 4, len(token))


def twin_mean(token, value, count, scale):
    """Mean of s over registered occurrences, by plain loops."""
    kept = []
    for v in sorted(set(token)):
        drawn = np.sort(np.repeat(value[token == v].astype(np.float64), count[token == v]))
        k = range_index(len(drawn))
        if k is None:
            continue
        b, low, high = np.median(drawn), drawn[k - 1], drawn[len(drawn) - k]
        change = [abs(min(max((high - x) / scale, 0), 1) - min(max((low - x) / scale, 0), 1)) for x in drawn]
        if np.mean(change) < 0.5:
            kept += [min(max((b - x) / scale, 0), 1) for x in drawn]
    return np.mean(kept) if kept else np.nan


@pytest.mark.parametrize("images", [4, 40])
@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 4.0, 50.0])
def test_the_profile_is_the_mean_edit_of_registered_occurrences(scale, images):
    token, value, count = observations(1, images=images)
    expected = twin_mean(token, value, count, scale)
    same = pytest.approx(expected, rel=1e-12, nan_ok=True)  # none is registered under the smallest scale
    assert Profile(token, value, count).mean(scale) == same
    found = register(token, value, count, match=Match(scale, 0.0, 0.0))
    assert mean_edit(token, value, count, found) == same


def test_registration_follows_the_scale():
    profile = Profile(*observations(1, images=4))
    registered = [int(profile.registered(scale).sum()) for scale in (0.3, 1.0, 50.0)]
    assert registered[0] < registered[1] < registered[2] <= 12


@pytest.mark.parametrize("planted", [0.4, 1.3, 7.0])
def test_a_planted_scale_is_found_to_the_last_bit(planted):
    token, value, count = observations(2)
    profile = Profile(token, value, count)
    match = match_scale(profile, profile.mean(planted))
    assert match.scale == pytest.approx(planted, rel=1e-9)
    assert abs(match.residual) < 1e-14


def test_of_several_crossings_the_largest_scale_is_taken():
    class Wavy(Profile):
        def __init__(self):
            pass

        def unit(self):
            return 1.0

        def mean(self, scale):  # above the target below 1, between 2 and 3; below it elsewhere
            return 0.3 if scale < 1 or 2 < scale < 3 else 0.1

    match = match_scale(Wavy(), 0.2)
    assert match.scale == pytest.approx(3.0, rel=1e-12)
    assert abs(match.residual) == pytest.approx(0.1)  # a jump: the residual says so


def test_no_crossing_is_reported():
    token, value, count = observations(3)
    profile = Profile(token, value, count)
    with pytest.raises(CalibrationError, match="DMRR"):
        match_scale(profile, 2.0)
    with pytest.raises(CalibrationError, match="same"):
        match_scale(Profile(token, np.ones_like(value), count), 0.2)


def test_another_rule_is_asked_under_the_same_scale():
    token, value, count = observations(4)
    rule = rule_named("count-30")
    found = register(token, value, count, rule=rule, match=Match(0.7, 0.0, 0.0))
    profile = Profile(token, value, count, rule=rule)
    assert profile.mean(0.7) == pytest.approx(mean_edit(token, value, count, found))


@pytest.mark.parametrize("readout", [name for name, one in READOUTS.items() if one.matched])
def test_observations_of_a_matched_readout_register_with_dmrrs_mean_edit(readout):
    token, value, count = observations(5)
    ranks = np.exp(value.astype(np.float64)).astype(np.float32)
    images = [
        ImageObservations(f"{n:03d}", token[r], count[r], value[None, r], ranks[None, r])
        for n in range(40)
        for r in [slice(12 * n, 12 * n + 12)]
    ]
    found = collect([2], images, readout=readout)
    dmrr = register(token, ranks, count)
    table = found.register(2)
    target = mean_edit(token, ranks, count, dmrr)
    assert mean_edit(token, value, count, table) == pytest.approx(target, abs=1e-12)
    assert table.scale == found.match(2).scale > 0
    half = found.only(found.images[:20])
    assert half.ranks.shape == half.values.shape
    plain = collect([2], [ImageObservations(one.key, one.token, one.count, one.values) for one in images])
    assert plain.match(2) is None
    assert plain.ranks is None
