"""The model's own detector: the region around the peak of a word's confidence, as fractions of the picture."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reweigh
from checkpoints import picture
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.rivals.tools.confidence import confidence, word_tokens
from reweigh.rivals.tools.lens_boxes import LensBoxes, around_peak, of_centre


def test_the_box_holds_what_hangs_together_with_the_peak():
    grid = torch.tensor(
        [
            [0.9, 0.1, 0.0, 0.0],
            [0.1, 0.5, 1.0, 0.0],
            [0.0, 0.6, 0.2, math.nan],
            [0.0, 0.0, 0.0, 0.9],
        ]
    )
    assert around_peak(grid, 0.1) == (0.25, 0.25, 0.75, 0.75)
    assert around_peak(grid, 1.0) == (0.25, 0.25, 0.75, 0.75)
    assert around_peak(grid, 1.01) is None
    assert around_peak(torch.full((2, 3), 0.4), 0.4) == (0.0, 0.0, 1.0, 1.0)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 6))
def test_regions_grow_as_repeated_widening_says(seed, rows, columns):
    grid = np.random.default_rng(seed).random((rows, columns)).astype(np.float32)
    high = grid >= grid.max() / 2
    inside = grid == grid.max()
    while True:
        wider = np.pad(inside, 1)
        wider = inside | ((wider[:-2, 1:-1] | wider[2:, 1:-1] | wider[1:-1, :-2] | wider[1:-1, 2:]) & high)
        if (wider == inside).all():
            break
        inside = wider
    down, across = np.nonzero(inside)
    wanted = (
        across.min() / columns,
        down.min() / rows,
        (across.max() + 1) / columns,
        (down.max() + 1) / rows,
    )
    assert around_peak(torch.tensor(grid), 0.0) == pytest.approx(wanted)


def test_a_box_of_the_centre_is_one_of_the_picture():
    assert of_centre((0.0, 0.5, 1.0, 1.0), (200, 100)) == (0.25, 0.5, 0.75, 1.0)
    assert of_centre((0.5, 0.0, 1.0, 1.0), (100, 400)) == (0.5, 0.375, 1.0, 0.625)
    assert of_centre((0.1, 0.2, 0.3, 0.4), (50, 50)) == (0.1, 0.2, 0.3, 0.4)


@pytest.mark.parametrize("family", ["llava", "llava_next", "qwen2_5_vl", "internvl", "gemma3"])
def test_boxes_are_those_of_the_confidence_in_the_whole_view(family, loaded):
    model, processor = loaded(family)
    anatomy, image = find_anatomy(model), picture(1, (112, 56))
    inputs = build_inputs(model, processor, [image], [DESCRIBE])
    tokens = word_tokens(processor, "image")
    read = confidence(model, inputs, tokens)[0]
    tiles = [patch.tile for patch in read.patches if patch is not None]
    grid = read.grid(tokens, tile=max(tiles) if family == "internvl" else 0)
    detect = LensBoxes(anatomy, processor, threshold=0.0)
    box = around_peak(grid, 0.0)
    wanted = of_centre(box, image.size) if processor.image_processor.do_center_crop else box
    assert detect(image, "image") == [wanted]
    detect.threshold = 1.1
    assert detect(image, "image") == []


def test_queries_have_no_place(loaded):
    model, processor = loaded("instructblip")
    with pytest.raises(UnsupportedError, match="grid"):
        LensBoxes(find_anatomy(model), processor)(picture(1), "image")


def test_halc_runs_with_nothing_but_its_model(loaded):
    model, processor = loaded("llava")
    options = {"detect": "lens", "match": "own", "is_entity": str.isalpha}
    session = reweigh.decoder("halc", model, processor, beams=2, **options)
    assert isinstance(session.decoder.detect, LensBoxes)
    kept = session.record()["options"]
    assert kept == {"beams": 2, "detect": "lens", "match": "own", "is_entity": "builtins.str.isalpha"}
    assert len(session.describe([picture(1), picture(2)], max_new_tokens=8)) == 2
