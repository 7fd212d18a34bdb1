"""References out of sample: a twin, planted correspondence and none, and the preconditions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from reweigh.lab.paper.analyses.references import References, errors, held_out
from reweigh.lab.paper.study import compute
from reweigh.tables.observations import ImageObservations, collect
from reweigh.tables.table import ReferenceTable

OPTIONS = {"resamples": 100, "seed": 5}


def values(rows, aggregate):
    return {row["quantity"]: row.estimate for row in rows if row["aggregate"] == aggregate}


def test_errors_are_those_of_the_definition():
    random = np.random.default_rng(1)
    middle, reference = random.uniform(0.1, 1, 30), random.uniform(0.1, 1, 30)
    mass, scale = random.integers(1, 90, 30).astype(float), 0.25
    rows = errors(middle, reference, mass, scale, **OPTIONS)
    own = [abs(m - b) / scale for m, b in zip(middle, reference, strict=True)]
    flat = [abs(m - scale) / scale for m in middle]
    by_token = values(rows, "median over tokens")
    assert by_token["token-specific"].value == pytest.approx(np.median(own))
    assert by_token["global"].value == pytest.approx(np.median(flat))
    assert by_token["reduction"].value == pytest.approx(1 - np.median(own) / np.median(flat))
    by_mass = values(rows, "mean weighted by occurrences")
    assert by_mass["token-specific"].value == pytest.approx(sum(np.array(own) * mass) / sum(mass))
    generator = np.random.default_rng(5)
    mixed = [np.median(np.abs(middle - generator.permutation(reference)) / scale) for _ in range(1000)]
    shuffled = by_token["shuffled"]
    assert (shuffled.value, shuffled.low, shuffled.high) == pytest.approx(
        (np.median(mixed), min(mixed), max(mixed))
    )
    expected = (1 + sum(one <= np.median(own) for one in mixed)) / 1001
    assert by_token["p of the shuffles"].value == pytest.approx(expected)
    assert errors(middle, reference, mass, scale, **OPTIONS) == rows


def test_a_planted_correspondence_has_no_error_and_the_smallest_p():
    middle = np.linspace(0.1, 1, 40)
    rows = errors(middle, middle.copy(), np.ones(40), 0.5, **OPTIONS)
    for aggregate in ("median over tokens", "mean weighted by occurrences"):
        found = values(rows, aggregate)
        assert found["token-specific"].value == 0.0
        assert found["reduction"].value == 1.0
        assert found["p of the shuffles"].value == pytest.approx(1 / 1001)


def test_a_shuffle_that_is_as_good_counts_against_the_correct_order():
    rows = errors(np.linspace(0.1, 1, 20), np.full(20, 0.4), np.ones(20), 0.5, **OPTIONS)
    assert values(rows, "median over tokens")["p of the shuffles"].value == 1.0


def test_without_correspondence_p_is_not_small():
    random = np.random.default_rng(8)
    chances = []
    for _ in range(5):
        middle, reference = random.uniform(0.1, 1, (2, 50))
        rows = errors(middle, reference, np.ones(50), 0.5, **OPTIONS)
        chances.append(values(rows, "median over tokens")["p of the shuffles"].value)
    assert np.median(chances) > 0.05


class Corpus:
    def __init__(self, found, keys):
        self.found, self.keys = found, keys

    def observations(self):
        return self.found

    def __len__(self):
        return len(self.keys)

    def __iter__(self):
        return iter(SimpleNamespace(key=key) for key in self.keys)


def seen(images=40):
    """Token 3 once in each image with its number as evidence, token 5 three times in every image, token 8 too."""
    parts = [
        ImageObservations(
            f"{number:03d}.png#{number}",
            np.array([3, 5, 8]),
            np.array([1, 3, 1]),
            np.array([[(number + 1) / 100, 0.5, 0.25]], dtype=np.float32),
        )
        for number in range(images)
    ]
    return collect([2], parts)


def material(tokens, keys=None, evaluation=40):
    tokens = np.array(tokens, dtype=np.int64)
    made = ReferenceTable(2, 0.2, tokens, tokens / 10.0, np.full(len(tokens), 9), {})
    held = [f"{number:03d}.png#{number}" for number in range(evaluation)]
    calibration = Corpus(None, keys or [f"c{number}.png#x{number}" for number in range(40)])
    return SimpleNamespace(
        table=made,
        evaluation=Corpus(seen(), held),
        calibration=calibration,
        draws={"resamples": 40},
        runs=SimpleNamespace(seed=1),
    )


def test_tokens_are_those_registered_and_observed_there():
    middle, reference, mass = held_out(material([1, 3, 5]))
    assert middle.tolist() == pytest.approx(
        [0.205, 0.5], abs=1e-7
    )  # the median of 0.01, 0.02 ... 0.40, and 0.5
    assert reference.tolist() == [0.3, 0.5]
    assert mass.tolist() == [40.0, 120.0]


def test_preconditions_are_reported(tmp_path):
    outcome = compute(References, material([3, 5, 8]))
    assert outcome.unmet is None
    assert outcome.frame.distinct("tokens") == [3]
    References().draw(outcome.frame, tmp_path / "figure")
    assert (tmp_path / "figure.png").is_file()
    assert "registered" in compute(References, material([])).unmet
    assert "two" in compute(References, material([3, 4])).unmet
    shared = compute(References, material([3, 5], keys=["other name.png#7", "b.png#y"]))
    assert "1 images" in shared.unmet
    assert "30" in compute(References, material([3, 5], evaluation=12)).unmet
