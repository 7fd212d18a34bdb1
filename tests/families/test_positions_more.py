"""Places of families beyond the six, and of videos."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from checkpoints import load, picture, prompt
from checkpoints.more import IMAGE, VIDEO, more, pixels, sequence
from reweigh.families.catalogue import family_of
from reweigh.families.positions import layout

SIDE = 28


def stream(model, inputs):
    """What enters the first decoder block, (T, d)."""
    seen = []
    hook = model.model.language_model.layers[0].register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    with torch.no_grad():
        model(**inputs)
    hook.remove()
    return seen[0][0]


@pytest.mark.parametrize("family", ["mistral3", "paligemma", "vipllava"])
def test_a_changed_patch_changes_the_feature_at_its_place(family):
    model, inputs = more(family)
    for module in model.model.vision_tower.modules():
        if type(module).__name__.endswith("Attention"):
            last = [part for part in module.modules() if isinstance(part, nn.Linear)][-1]
            for parameter in last.parameters():
                nn.init.zeros_(parameter)
    plain = stream(model, inputs)
    for column, patch in layout(family_of(model.config), model.config, inputs["input_ids"], inputs)[0]:
        left, top, right, bottom = (round(SIDE * edge) for edge in patch.box)
        changed = inputs["pixel_values"].clone()
        changed[..., top:bottom, left:right] += 1.0
        moved = (stream(model, {**inputs, "pixel_values": changed}) - plain).norm(dim=-1) > 1e-5
        assert moved.nonzero().flatten().tolist() == [column]


@functools.cache
def onevision():
    return more("llava_onevision")[0]


@settings(max_examples=30)
@given(height=st.integers(1, 300), width=st.integers(1, 300), budget=st.sampled_from([1, 2, 9]))
def test_onevision_shrinks_and_packs_as_the_model_does(height, width, budget):
    model = onevision()
    model.config.vision_aspect_ratio = ratio = f"anyres_max_{budget}"
    size = torch.tensor([[height, width]])
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    crops = image_size_to_num_patches((height, width), model.config.image_grid_pinpoints, SIDE)
    features = [torch.ones(crops, 16, 1)]
    try:
        packed, _ = model.model.pack_image_features(features, size, torch.full((1,), -1.0), ratio)
    except RuntimeError:
        return  # a picture so flat that the model itself cannot shrink it
    ids = torch.full((1, len(packed[0])), IMAGE)
    row = layout(family_of(model.config), model.config, ids, {"image_sizes": size})[0]
    assert [column for column, _ in row] == (packed[0][:, 0] > 0).nonzero().flatten().tolist()


def test_onevision_shows_several_images_at_base_resolution_only():
    model, _ = more("llava_onevision")
    inputs = sequence(2 * 17, pixel_values=pixels(2, 1, 3, SIDE, SIDE))
    inputs |= {"image_sizes": torch.tensor([[56, 56], [20, 90]]), "batch_num_images": torch.tensor([2])}
    newline = torch.full_like(model.model.image_newline, 7.5)
    model.model.image_newline.data.copy_(newline)
    states = stream(model, inputs)
    row = layout(family_of(model.config), model.config, inputs["input_ids"], inputs)[0]
    held = (inputs["input_ids"][0] == IMAGE).nonzero().flatten().tolist()
    assert [column for column, _ in row] == [at for at in held if not torch.equal(states[at], newline)]
    assert [patch.image for _, patch in row] == [0] * 16 + [1] * 16


@pytest.mark.parametrize(("family", "newlines"), [("llava_onevision", 1), ("llava_next_video", 0)])
def test_frames_of_a_video_are_tiles(family, newlines):
    model, _ = more(family)
    inputs = sequence(3 * 4 + newlines, pixel_values_videos=pixels(1, 3, 3, SIDE, SIDE))
    inputs["input_ids"][inputs["input_ids"] == IMAGE] = VIDEO
    newline = torch.full_like(model.model.image_newline, 7.5)
    model.model.image_newline.data.copy_(newline)
    states = stream(model, inputs)
    row = layout(family_of(model.config), model.config, inputs["input_ids"], inputs)[0]
    held = (inputs["input_ids"][0] == VIDEO).nonzero().flatten().tolist()
    assert [column for column, _ in row] == [at for at in held if not torch.equal(states[at], newline)]
    assert [(p.tile, p.row, p.col) for _, p in row] == [
        (t, r, c) for t in range(3) for r in (0, 1) for c in (0, 1)
    ]


def test_images_and_videos_of_one_row_keep_their_order(checkpoint):
    config = load(checkpoint("qwen2_5_vl"))[0].config
    image, video = config.image_token_id, config.video_token_id
    # a video of two steps whose second step follows a time stamp, then an image
    ids = torch.tensor([[30, video, video, 31, video, video, 32, image, image, image, 33]])
    grids = {"image_grid_thw": torch.tensor([[1, 2, 6]]), "video_grid_thw": torch.tensor([[2, 4, 2]])}
    row = layout(family_of(config), config, ids, grids)[0]
    told = [(column, patch.image, patch.tile, patch.row, patch.col) for column, patch in row]
    film = [(1, 0, 0, 0, 0), (2, 0, 0, 1, 0), (4, 0, 1, 0, 0), (5, 0, 1, 1, 0)]
    assert told == [*film, (7, 1, 0, 0, 0), (8, 1, 0, 0, 1), (9, 1, 0, 0, 2)]


def test_a_kept_class_token_shows_the_image_but_has_no_place(checkpoint):
    model, processor = load(checkpoint("llava"))
    model.config.vision_feature_select_strategy = processor.vision_feature_select_strategy = "full"
    inputs = processor(images=picture(1), text=prompt(processor), return_tensors="pt")
    with torch.no_grad():
        model(**inputs)  # the model takes as many features as the processor made room for
    row = layout(family_of(model.config), model.config, inputs["input_ids"], inputs)[0]
    assert [patch is None for _, patch in row] == [True] + [False] * 16
    assert [(patch.row, patch.col) for _, patch in row[1:]] == [(r, c) for r in range(4) for c in range(4)]
