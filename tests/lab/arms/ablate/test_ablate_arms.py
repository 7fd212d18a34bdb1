"""What each arm changes, and that it changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import twin
from reweigh.errors import InputError, UnknownNameError
from reweigh.intervene import CLIP
from reweigh.lab.arms.ablate.arms import (
    WORDS,
    by_count,
    derangement,
    global_reference,
    in_own_units,
    make_variants,
    parse_arms,
    readout_of,
    shuffled,
    without_abstention,
)
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable
from reweigh.world import table_path

TABLE = twin.table(40)


def arms(kinds=tuple(WORDS), *, records=5, observations=None, shuffles=3, seed=42):
    return make_variants(
        kinds,
        TABLE,
        records=records,
        vocab_size=40,
        observations=observations,
        shuffles=shuffles,
        seed=seed,
    )


@given(st.integers(2, 60), st.integers(0, 2**32))
def test_a_derangement_is_a_permutation_without_fixed_point(count, seed):
    drawn = derangement(count, seed)
    assert sorted(drawn) == list(range(count))
    assert all(to != at for at, to in enumerate(drawn))
    assert (drawn == derangement(count, seed)).all()


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_records_cannot_be_exchanged(count):
    with pytest.raises(InputError, match="exchange"):
        derangement(count, 0)


def test_the_global_table_has_one_reference():
    changed = global_reference(TABLE)
    assert (changed.references == TABLE.b0).all()
    assert (changed.tokens == TABLE.tokens).all()
    assert changed.b0 == TABLE.b0
    assert changed.fingerprint != TABLE.fingerprint
    changed.verify()


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_shuffling_keeps_the_references_and_the_tokens(seed):
    changed = shuffled(TABLE, seed)
    assert sorted(changed.references) == sorted(TABLE.references)
    assert (changed.tokens == TABLE.tokens).all()
    assert (changed.references == shuffled(TABLE, seed).references).all()
    changed.verify()


def test_different_seeds_shuffle_differently():
    assert (shuffled(TABLE, 0).references != TABLE.references).any()
    assert (shuffled(TABLE, 0).references != shuffled(TABLE, 1).references).any()


def test_without_abstention_every_token_has_a_reference():
    changed = without_abstention(TABLE, 40)
    assert [changed.reference(token) for token in range(40)] == [
        TABLE.b0 if TABLE.reference(token) is None else TABLE.reference(token) for token in range(40)
    ]
    changed.verify()


def test_the_embedded_table_passes_its_own_checks_in_every_arm():
    table = ReferenceTable.from_pretrained(table_path())
    size = int(table.about["identity"]["vocab_size"])
    for changed in (
        without_abstention(table, size),
        global_reference(table),
        shuffled(table, 0),
        in_own_units(table),
    ):
        changed.verify()


def test_registration_by_count_needs_no_more_than_the_count():
    # Token 1 was seen 12 times in two images, token 2 six times in one, token 3 four times.
    observed = Observations(
        layers=(2,),
        images=("a", "b"),
        image=np.array([0, 0, 0, 1], dtype=np.int32),
        token=np.array([1, 2, 3, 1], dtype=np.int32),
        count=np.array([7, 6, 4, 5], dtype=np.int32),
        values=np.array([[0.01, 0.02, 0.03, 0.04]], dtype=np.float32),
    )
    five, ten = by_count(TABLE, observed, 5), by_count(TABLE, observed, 10)
    assert five.tokens.tolist() == [1, 2]
    assert ten.tokens.tolist() == [1]
    assert five.counts.tolist() == [12, 6]
    assert five.about["rule"] == "count-5"


def test_arms_come_in_the_order_of_the_table_and_the_full_method_is_always_there():
    assert parse_arms("blind, global,blind") == ["full", "global", "blind"]
    with pytest.raises(UnknownNameError, match="did you mean cyclic"):
        parse_arms("ciclic")


def test_each_arm_changes_one_thing():
    made, left_out = arms()
    by_name = {arm.name: arm for arm in made}
    assert {kind for kind in left_out if readout_of(kind) is None} == {"count-5", "count-10"}
    own = list(range(5))
    for name, arm in by_name.items():
        changes = [
            arm.table.fingerprint != TABLE.fingerprint,
            arm.blind or list(arm.donors or own) != own,
            arm.clip != CLIP,
        ]
        assert sum(changes) == (name != "full"), name
    assert [arm.seed for arm in made if arm.kind == "shuffled"] == [0, 1, 2]
    assert by_name["cyclic"].donors == [1, 2, 3, 4, 0]
    assert all(donor != at for at, donor in enumerate(by_name["mismatched"].donors))
    assert by_name["bidirectional"].clip == (None, 1.0)
    assert by_name["unbounded"].clip == (0.0, None)


def test_a_single_record_has_no_other_to_take_evidence_from():
    made, left_out = arms(("full", "mismatched", "cyclic"), records=1)
    assert [arm.name for arm in made] == ["full"]
    assert set(left_out) == {"mismatched", "cyclic"}
