"""The simulated cluster and the cost model beside it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from reweigh.errors import InputError
from reweigh.scale.cost import Rates, cost
from reweigh.scale.simulate import Conditions, expected_seconds, simulate

CALM = Conditions(seconds=2.0, spread=0.0, stragglers=0.0, failures=0.0)
ROUGH = replace(CALM, spread=0.2, stragglers=0.02, failures=0.01, restart=30.0)
RATES = Rates(image_seconds=1.0, hash_seconds=0.001, part_seconds=0.01, image_bytes=3000.0)


@pytest.mark.parametrize(("shards", "workers"), [(1, 1), (12, 4), (13, 4), (3, 8)])
def test_without_trouble_it_is_plain_division(shards, workers):
    found = simulate(shards, workers, CALM)
    assert found.seconds == 2.0 * -(-shards // workers)
    assert (found.lost, found.copies) == (0, 0)


@pytest.mark.parametrize(("shards", "workers"), [(300, 1), (600, 20), (600, 200)])
def test_the_model_is_near_the_simulation(shards, workers):
    assert expected_seconds(shards, workers, ROUGH) == pytest.approx(
        simulate(shards, workers, ROUGH).seconds, rel=0.3
    )


def test_copies_cut_a_straggler_short():
    """One shard in fifty takes 200 s instead of 2; the end does not wait for that, once for each seed."""
    for seed in range(5):
        found = simulate(120, 60, replace(CALM, stragglers=0.02, slowdown=100.0, seed=seed))
        assert found.copies > 0
        assert found.seconds < 30.0


def test_the_limit_is_named():
    def limit(images, gpus, memory=1e12):
        return cost(images, gpus, RATES, replace(CALM, seconds=8.0), batch=8, memory=memory).limit

    assert limit(10**4, 1) == "GPUs"
    assert limit(100, 1000) == "too few shards"
    assert limit(10**6, 10_000) == "driver's disk"
    assert limit(10**5, 1, memory=1e6) == "driver's memory"
    assert limit(10**8, 1) == "files in a folder"


def test_impossible_conditions_are_refused():
    for wrong, said in (
        ({"failures": 0.9}, "the share of failures is 0.9"),
        ({"seconds": -8.0}, "the time of a shard is -8"),
        ({"slowdown": 0.0}, "the slowdown of a straggler is 0"),
        ({"spread": math.nan}, "the spread of times is nan"),
        ({"restart": math.inf}, "the time of a restart is inf"),
    ):
        with pytest.raises(InputError, match=f"{said}\n"):
            Conditions(**wrong)
    with pytest.raises(InputError, match="0 shards"):
        simulate(0, 1, CALM)
    with pytest.raises(InputError, match="part seconds"):
        replace(RATES, part_seconds=0.0)
