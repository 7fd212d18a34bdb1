"""Evidence read piece by piece is the evidence of the whole; given evidence is taken as it is, and never added to."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from reweigh.engines.reader import Reader
from reweigh.engines.rows import Row
from reweigh.errors import InputError, MismatchError, UnsupportedError
from reweigh.method.lens import Lens

pytestmark = pytest.mark.numerics

VOCABULARY, WIDTH, LENGTH = 23, 8, 20
POSITIONS = [3, 4, 5, 9, 10]
torch.manual_seed(0)
LENS = Lens(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False))
STATES = {0: torch.randn(LENGTH, WIDTH), 1: torch.randn(LENGTH, WIDTH)}


def row():
    return Row(positions=list(POSITIONS), patches=[None] * 5, bounds=[3, 5])


def by_hand(layer):
    logits = LENS.read(STATES[layer][POSITIONS])
    ranks = 1 + (logits[:, None, :] > logits[:, :, None]).sum(-1)
    return (1.0 / ranks).mean(0)


@given(cuts=st.sets(st.integers(1, LENGTH - 1)))
def test_any_chunks_give_the_mean_reciprocal_rank(cuts):
    reader, one = Reader(LENS, [0, 1], locate=[2, 7]), row()
    for start, stop in itertools.pairwise([0, *sorted(cuts), LENGTH]):
        reader.feed(one, start, {layer: states[start:stop] for layer, states in STATES.items()})
    found = reader.evidence(one)
    for layer in (0, 1):
        torch.testing.assert_close(found.at(layer), by_hand(layer))
    assert found.positions == tuple(POSITIONS)
    torch.testing.assert_close(found.located.mean(dim=1), found.values[:, [2, 7]])
    assert {3, 5} <= set(one.marks)  # a cropped cache goes back there


def test_a_row_without_image_has_no_evidence():
    assert Reader(LENS, [0]).evidence(Row()) is None


def test_what_another_reader_needs_and_nobody_read_is_refused():
    one = row()
    Reader(LENS, [0], tokens=[1, 2]).feed(one, 0, STATES)
    for reader, words in (
        (Reader(LENS, [1], tokens=[1, 2]), "layer"),
        (Reader(LENS, [0]), "tokens"),
        (Reader(LENS, [0], tokens=[1, 2], readouts=["prob"]), "prob"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            reader.evidence(one)
    assert torch.equal(
        Reader(LENS, [0], tokens=[1, 2]).evidence(one).values, one.reading[0].sums.evidence()[None]
    )


def test_given_evidence_is_finished_and_cannot_be_joined():
    reader, measured, one = Reader(LENS, [0]), row(), row()
    reader.feed(measured, 0, STATES)
    known = reader.evidence(measured)
    reader.give(one, known)
    assert torch.equal(reader.evidence(one).values, known.values)
    longer = one.extended(0, LENGTH, [(0, None)])
    for more in (longer, measured):
        with pytest.raises(UnsupportedError, match="further image"):
            reader.give(more, known)
    with pytest.raises(UnsupportedError, match="further image"):
        reader.feed(longer, LENGTH, STATES)
    with pytest.raises(InputError, match="ranks 23"):
        reader.give(row(), dataclasses.replace(known, values=known.values[:, 1:]))
    with pytest.raises(InputError, match="layer 1"):
        Reader(LENS, [1]).give(row(), known)
    with pytest.raises(MismatchError, match="prob"):
        Reader(LENS, [0], readouts=["prob"]).evidence(one)


def test_positions_that_were_known_but_not_read_have_no_evidence():
    reader, one = Reader(LENS, [0]), row()
    for cut in (0, 4):  # nothing read, and the first image cut
        reader.feed(one, 0, {0: STATES[0][:cut]})
        with pytest.raises(UnsupportedError, match=r"of 5 visual positions were not read"):
            reader.evidence(one)
        one.check_read(cut)
        with pytest.raises(UnsupportedError, match="were not read"):
            one.check_read(cut + 4)
    reader.feed(one, 4, {0: STATES[0][4:]})
    assert reader.evidence(one) is not None
