"""Readout arms: their scale or budget, the tokens two arms share, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.errors import UnknownNameError
from reweigh.lab.arms.ablate.arms import (
    BUDGET,
    READOUT_ARMS,
    WORDS,
    describe_sets,
    make_variants,
    on_common_tokens,
    parse_arms,
    readout_arm,
    references_of,
    registered_sets,
    set_difference,
)
from reweigh.method.matching import mean_edit
from reweigh.method.references import stable
from reweigh.tables.observations import ImageObservations, collect
from reweigh.tables.table import ReferenceTable


@pytest.fixture(scope="module")
def observe():
    """Observations of a made-up calibration: DMRR and, for every readout, a noisy increasing function of it."""
    random = np.random.default_rng(5)
    tokens, images = np.arange(15), 60
    level = random.uniform(0.01, 0.1, len(tokens))
    parts = []
    for _ in range(images):
        ranks = np.clip(level * random.lognormal(0, 0.5, len(tokens)), 1e-4, 1).astype(np.float32)
        noise = random.lognormal(0, 0.3, len(tokens)).astype(np.float32)
        parts.append((ranks, noise, random.integers(1, 4, len(tokens))))

    def values(readout, ranks, noise):
        share = np.clip(ranks * noise * 0.3, 1e-6, 1).astype(np.float32)
        return {"dmrr": ranks, "prob": share, "logprob": np.log(share)}.get(readout, 3 * share - 1)

    def observations(readout="dmrr", *, evidence=None):
        matched = readout not in ("dmrr", "prob")
        rows = [
            ImageObservations(
                f"{n:03d}",
                tokens,
                count,
                values(readout, ranks, noise)[None],
                ranks[None] if matched else None,
            )
            for n, (ranks, noise, count) in enumerate(parts)
        ]
        return collect([2], rows, readout=readout)

    return observations


@pytest.fixture(scope="module")
def table(observe):
    return ReferenceTable.build(2, observe().register(2), {"rule": "stable"})


@pytest.mark.parametrize("name", READOUT_ARMS)
def test_every_arm_but_plain_probability_spends_dmrrs_mean_edit(name, observe, table):
    arm = readout_arm(name, table, observe, rule=stable)
    assert arm.table.readout == READOUT_ARMS[name][0]
    ranked, own = observe(), observe(arm.table.readout)
    target = mean_edit(ranked.token, ranked.values[0], ranked.count, references_of(table))
    spent = arm.factor * mean_edit(own.token, own.values[0], own.count, references_of(arm.table))
    if name == "mean-probability":
        assert arm.factor == 1.0
        assert "matched" not in arm.table.about
        assert spent != pytest.approx(target, rel=1e-3)
    else:
        assert spent == pytest.approx(target, rel=1e-9)
        assert ("matched" in arm.table.about) == (name != BUDGET)


def test_rank_is_the_table_in_use_and_others_are_unknown(observe, table):
    assert readout_arm("rank", table, observe, rule=stable).table is table
    with pytest.raises(UnknownNameError):
        readout_arm("entropy", table, observe, rule=stable)


def make(tokens, readout="dmrr"):
    tokens = np.array(tokens, dtype=np.int64)
    return ReferenceTable(
        2, 0.5, tokens, tokens / 100.0, np.full(len(tokens), 9), {"readout": readout, "rule": "stable"}
    )


def test_both_arms_keep_the_tokens_they_share():
    first, second = make([1, 2, 5, 9]), make([2, 3, 9], "prob")
    mine, theirs = on_common_tokens(first, second)
    assert mine.tokens.tolist() == theirs.tokens.tolist() == [2, 9]
    assert mine.references.tolist() == [0.02, 0.09]
    assert (mine.readout, theirs.readout) == ("dmrr", "prob")
    assert set_difference(first, second) == pytest.approx(3 / 5)
    assert "both 2; the sets differ by 60.0%." in describe_sets(first, second, ("a", "b"))
    many = range(1, 60)
    told = describe_sets(make(many), make(range(1, 61)), ("a", "b"))
    assert "less than 3%" in told


def test_a_matched_arm_brings_the_full_method_on_the_same_tokens(observe, table):
    kinds = parse_arms("zscore-matched, zscore")
    assert kinds == ["full", "zscore", "zscore-matched", "rank-zscore-matched"]
    assert all(kind in WORDS for kind in kinds)
    options = {"records": 3, "vocab_size": 20, "observations": None, "shuffles": 1, "seed": 1}
    arms, left_out = make_variants(
        kinds, table, **options, readouts=lambda name: readout_arm(name, table, observe, rule=stable)
    )
    assert left_out == {}
    full, native, matched, ranked = arms
    assert full.table is table
    assert native.table.readout == matched.table.readout == "zscore"
    assert ranked.table.readout == "dmrr"
    assert matched.table.tokens.tolist() == ranked.table.tokens.tolist()
    assert len({arm.table.fingerprint for arm in arms}) == 4 or len(native.table) == len(matched.table)
    find = lambda name: readout_arm(name, table, observe, rule=stable)  # noqa: E731
    [told] = registered_sets(kinds, table, find)
    assert told.startswith(f"zscore registers {len(native.table)} tokens, full {len(table)}, ")
    assert registered_sets(kinds, table, None) == []
    arms, left_out = make_variants(kinds, table, **options)
    assert [arm.name for arm in arms] == ["full"]
    assert set(left_out) == {"zscore", "zscore-matched", "rank-zscore-matched"}
