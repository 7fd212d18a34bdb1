"""Sequences and batches: whatever happens to a cache's rows, each keeps its own images and what was read of them."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reweigh.engines.base import Pass, Prompt
from reweigh.engines.rows import Batch, Row, image_bounds
from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.method.grids import Patch

COLUMNS = st.sets(st.integers(0, 30)).map(sorted)


def row(*positions, marks=None, **more):
    bounds = [len(positions)] if positions else []
    made = Row(positions=list(positions), patches=[None] * len(positions), bounds=bounds, **more)
    for count, mark in (marks or {}).items():
        made.mark(count, mark)
    return made


def forward(*rows, past=0, length=1, seen=0, logits=None):
    rows = list(rows)
    prompt = Prompt(run=None, inputs={}, start=0, end=0, rows=rows, batch=Batch(1, rows), seen=seen)
    made = Pass(prompt=prompt, rows=rows, past=past, length=length)
    made.logits = torch.zeros(len(rows), 1, 2) if logits is None else logits
    return made


def patch(image):
    return Patch(image, 0, 0, 0, 1, 1)


def test_bounds_are_the_ends_of_images():
    assert image_bounds([]) == []
    assert image_bounds([None, None]) == [2]
    assert image_bounds([patch(0), patch(0), patch(1), patch(2), patch(2)]) == [2, 3, 5]


def test_a_further_prompt_adds_positions_and_keeps_what_was_read():
    before = row(1, 2, marks={2: "a"})
    after = before.extended(0, 10, [(0, patch(0)), (3, patch(1))])
    assert after.positions == [1, 2, 10, 13]
    assert after.bounds == [2, 3, 4]
    assert (after.read, after.reading) == (2, "a")
    assert before.positions == [1, 2]
    assert after.number != before.number
    assert before.extended(0, 10, []) is before
    assert before.extended(3, 10, []).index == 3


def test_a_prompt_that_failed_leaves_nothing_behind():
    noted = row(1, marks={1: "a"}).extended(0, 10, [(0, None), (4, None)])
    assert noted.extended(0, 10, [(2, None)]).positions == [1, 12]


def test_cropping_goes_back_to_the_last_bound():
    images = [patch(0)] * 3 + [patch(1)] * 2
    whole = Row().extended(0, 0, list(zip([1, 2, 3, 8, 9], images, strict=True)))
    whole.mark(3, "one")
    whole.mark(5, "both")
    assert whole.cropped(10) is whole
    for length in (4, 8):
        between = whole.cropped(length)
        assert (between.positions, between.bounds, between.reading) == ([1, 2, 3], [3], "one")
    for length in (2, 3, 9):
        with pytest.raises(UnsupportedError, match="cropped"):
            whole.cropped(length)
    nothing = whole.cropped(1)
    assert (nothing.positions, nothing.bounds, nothing.reading, nothing.images) == ([], [], None, 0)
    assert whole.reading == "both"


def test_a_batch_crops_all_rows_or_none():
    one, other = row(1, 2, marks={2: "a"}), row(4, 5, marks={2: "b"})
    batch = Batch(1, [one, one, other], seen=20, scratch={"x": 1})
    batch.crop(25)
    assert (batch.seen, batch.scratch) == (20, {"x": 1})
    with pytest.raises(UnsupportedError, match="cropped"):
        batch.crop(5)
    assert batch.rows == [one, one, other]
    batch.crop(3)
    assert [len(found.positions) for found in batch.rows] == [2, 2, 0]
    assert (batch.rows[0], batch.seen, batch.scratch) == (one, 3, {})


def test_beams_are_one_sequence_several_times():
    batch = Batch(1, [Row(index=0), Row(index=1)])
    prompts = batch.extend(0, [[(1, None)], []], rows=6)
    assert batch.rows == [prompts[0]] * 3 + [prompts[1]] * 3
    batch.scratch["x"] = 1
    batch.reorder(torch.tensor([1, 1, 0, 5, 4, 3]))
    assert batch.scratch == {"x": 1}  # beams changed places within their own prompts
    batch.reorder(torch.tensor([4, 0]))
    assert batch.rows == [prompts[1], prompts[0]]
    assert batch.scratch == {}
    batch.repeat(2)
    assert batch.rows == [prompts[1]] * 2 + [prompts[0]] * 2


def test_rows_that_do_not_fit_are_refused():
    batch = Batch(1, [Row(index=0), Row(index=1)])
    with pytest.raises(InputError, match="2 rows"):
        batch.extend(0, [[]] * 3, rows=3)
    for rows in (1, 3):
        with pytest.raises(ReweighError, match="2 prompts"):
            batch.extend(0, [[]] * 2, rows=rows)


def test_a_copy_shares_what_was_read_and_nothing_else():
    one = row(1, marks={1: object()})
    batch = Batch(1, [one, one], seen=9, scratch={"x": 1}, branches={"b": [1]})
    other = copy.deepcopy(batch)
    assert other.rows[0] is other.rows[1]
    assert other.rows[0] is not one
    assert other.rows[0].reading is one.reading
    other.rows[0].mark(2, "more")
    assert one.read == 1
    assert (other.seen, other.scratch, other.branches) == (9, {}, {"b": [1]})
    assert other.branches["b"] is not batch.branches["b"]


@given(
    columns=st.lists(COLUMNS, min_size=1, max_size=3),
    seen=st.integers(0, 30),
    past=st.integers(0, 30),
    length=st.integers(1, 10),
)
def test_new_columns_are_those_of_the_pass_that_were_not_shown(columns, seen, past, length):
    rows = [row(*own) for own in columns]
    found = forward(*rows, past=past, length=length, seen=seen).new()
    wanted = [[c - past for c in own if past <= c < past + length and c >= seen] for own in columns]
    assert found == [(place, rows[place], own) for place, own in enumerate(wanted) if own]


def test_beams_are_read_once():
    one, other = row(1, 2), row(3)
    assert [place for place, _, _ in forward(one, one, other, other, length=5).new()] == [0, 2]


@given(
    columns=st.lists(st.sets(st.integers(0, 20)).map(sorted), min_size=1, max_size=2),
    past=st.integers(0, 10),
    length=st.integers(1, 12),
    kept=st.integers(1, 12),
)
def test_edits_start_at_the_last_visual_column(columns, past, length, kept):
    kept = min(kept, length)
    made = forward(
        *(row(*own) for own in columns), past=past, length=length, logits=torch.zeros(len(columns), kept, 2)
    )
    absolute = range(past + length - kept, past + length)
    for place, own in enumerate(columns):
        expected = [bool(own) and column >= own[-1] for column in absolute]
        assert [at >= made.start_of(place) for at in range(kept)] == expected
