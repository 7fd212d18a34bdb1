"""Patches against the models themselves: brightening a patch must change the feature said to lie there."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from checkpoints import load, picture, prompt
from reweigh.errors import InputError
from reweigh.families.catalogue import Family, family_of
from reweigh.families.positions import layout
from reweigh.method.grids import Patch, View

GRIDS = ("llava", "llava_next", "qwen2_5_vl", "internvl", "gemma3")
# LLaVA-1.5 sees the central square only
CASES = [("llava", (56, 56))] + [
    (family, size) for family in GRIDS[1:] for size in [(56, 56), (112, 56), (56, 112)]
]


def positions(model, inputs):
    return layout(family_of(model.config), model.config, inputs["input_ids"], inputs)


def blinkered(model):
    """Cut attention out of the vision tower, so that a feature knows its own patch only."""
    core = model.model
    tower = core.visual if hasattr(core, "visual") else core.vision_tower
    for module in tower.modules():
        if type(module).__name__.endswith("Attention"):
            last = [part for part in module.modules() if isinstance(part, nn.Linear)][-1]
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
    return model


def stream(model, inputs):
    """What enters the first decoder block, (B, T, d)."""
    seen = []
    block = model.model.language_model.layers[0]
    hook = block.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    with torch.no_grad():
        model(**inputs)
    hook.remove()
    return seen[0]


def with_mark(size, x, y, side):
    """A gray picture with one bright square."""
    image = Image.new("RGB", size, (90, 90, 90))
    image.paste((255, 240, 20), (x, y, x + side, y + side))
    return image


@pytest.mark.parametrize(("family", "size"), CASES)
def test_a_bright_patch_shows_up_at_its_place(family, size, checkpoint):
    model, processor = load(checkpoint(family))
    blinkered(model)
    text = prompt(processor)

    def run(image):
        inputs = processor(images=image, text=text, return_tensors="pt")
        return inputs, stream(model, inputs)[0]

    inputs, plain = run(Image.new("RGB", size, (90, 90, 90)))
    whole = whole_view(family, positions(model, inputs)[0])
    side = 14
    for x in range(0, size[0], 2 * side):
        for y in range(0, size[1], 2 * side):
            change = (run(with_mark(size, x, y, side))[1] - plain).norm(dim=-1)
            _, patch = max(whole, key=lambda position: change[position[0]].item())
            left, top, right, bottom = patch.box
            assert left < (x + side) / size[0], (patch, x, y)
            assert right > x / size[0], (patch, x, y)
            assert top < (y + side) / size[1], (patch, x, y)
            assert bottom > y / size[1], (patch, x, y)
            outside = torch.ones_like(change, dtype=torch.bool)
            outside[[column for column, _ in positions(model, inputs)[0]]] = False
            assert change[outside].max() == 0


def resized(model, processor, height, width):
    """Let a LLaVA show its tower pictures of another size than its configuration says."""
    tower = model.model.vision_tower
    tower.forward = functools.partial(tower.forward, interpolate_pos_encoding=True)
    size = {"height": height, "width": width}
    processor.image_processor.size = processor.image_processor.crop_size = size
    return model, processor


@pytest.mark.parametrize(("height", "width"), [(42, 42), (56, 84)])
def test_interpolated_positions_keep_their_grid(height, width, checkpoint):
    model, processor = resized(*load(checkpoint("llava")), height, width)
    blinkered(model)
    plain = processor(
        images=Image.new("RGB", (width, height), (90, 90, 90)), text=prompt(processor), return_tensors="pt"
    )
    marked = processor(
        images=with_mark((width, height), width - 14, height - 14, 14),
        text=prompt(processor),
        return_tensors="pt",
    )
    change = (stream(model, marked) - stream(model, plain))[0].norm(dim=-1)
    row = positions(model, plain)[0]
    rows, cols = height // 7, width // 7
    assert {(patch.rows, patch.cols) for _, patch in row} == {(rows, cols)}
    _, patch = max(row, key=lambda position: change[position[0]].item())
    assert patch.row >= rows - 2
    assert patch.col >= cols - 2


def test_doctor_finds_the_grid_of_interpolated_positions(checkpoint):
    from reweigh.doctor.model import examine

    model, processor = resized(*load(checkpoint("llava")), 42, 56)
    assert examine(model, processor)["visual_positions"]["tiles"] == [(0, 6, 8)]


def whole_view(family, row):
    """The positions of the finest tile that shows the whole picture."""
    last = max(patch.tile for _, patch in row)
    return [(column, patch) for column, patch in row if patch.tile == last]


def test_internvl_crops_run_left_to_right_with_the_thumbnail_last(checkpoint):
    model, processor = load(checkpoint("internvl"))
    blinkered(model)
    text = prompt(processor)
    inputs = processor(images=Image.new("RGB", (112, 56), (90, 90, 90)), text=text, return_tensors="pt")
    marked = processor(images=with_mark((112, 56), 70, 14, 14), text=text, return_tensors="pt")
    change = (stream(model, marked) - stream(model, inputs))[0].norm(dim=-1)
    row = positions(model, inputs)[0]
    moved = [patch.tile for column, patch in row if change[column] > 1e-3]
    assert max(patch.tile for _, patch in row) == 2
    assert set(moved) == {1, 2}
    best = max(
        (position for position in row if position[1].tile == 1),
        key=lambda position: change[position[0]].item(),
    )
    assert (best[1].row, best[1].col) == (1, 1)


def test_newline_features_are_left_out(checkpoint):
    model, processor = load(checkpoint("llava_next"))
    marker = torch.full_like(model.model.image_newline, 7.5)
    model.model.image_newline.data.copy_(marker)
    for size in [(56, 56), (100, 37), (30, 90), (28, 28), (200, 30)]:
        inputs = processor(images=picture(3, size), text=prompt(processor), return_tensors="pt")
        visual = {column for column, _ in positions(model, inputs)[0]}
        held = {int(column) for column in (inputs["input_ids"][0] == model.config.image_token_id).nonzero()}
        states = stream(model, inputs)[0]
        newline = {column for column in held if torch.equal(states[column], marker)}
        assert newline
        assert visual == held - newline


@functools.cache
def next_model(path):
    return load(path)


@settings(max_examples=40)
@given(width=st.integers(1, 200), height=st.integers(1, 200))
def test_high_resolution_grid_is_the_one_that_the_model_packs(width, height, checkpoint):
    """Let the model pack coordinates instead of features, and read its order back."""
    model, _ = next_model(checkpoint("llava_next"))
    config = model.config
    from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape

    size = torch.tensor([[height, width]])
    down, across = get_anyres_image_grid_shape(size[0], config.image_grid_pinpoints, 28)
    tile, at = torch.arange(1 + down * across), torch.arange(16)
    y = torch.where(tile > 0, (tile - 1) // across, 0)[:, None] * 4 + at // 4
    x = torch.where(tile > 0, (tile - 1) % across, 0)[:, None] * 4 + at % 4
    coordinates = torch.stack([(tile > 0)[:, None].expand_as(y), y, x], -1).float()
    packed, _ = model.model.pack_image_features([coordinates], size, "default", torch.full((3,), -1.0))
    token = config.image_token_id
    ids = torch.full((1, len(packed[0]) + 2), token)
    ids[0, 0] = ids[0, -1] = token + 1
    row = layout(family_of(config), config, ids, {"image_sizes": size})[0]
    truth = {column + 1: value for column, value in enumerate(packed[0].int().tolist()) if value[0] >= 0}
    assert [column for column, _ in row] == list(truth)
    # a very flat picture may leave no row at all
    top = min((y for view, y, _ in truth.values() if view == 1), default=0)
    left = min((x for view, _, x in truth.values() if view == 1), default=0)
    for column, patch in row:
        view, y, x = truth[column]
        expected = (0, y, x) if view == 0 else (1, y - top, x - left)
        assert (patch.tile, patch.row, patch.col) == expected
        assert 0 <= patch.row < patch.rows
        assert 0 <= patch.col < patch.cols


@pytest.mark.parametrize("family", GRIDS)
def test_batches_equal_rows_one_by_one(family, checkpoint):
    model, processor = load(checkpoint(family))
    images = [[picture(1, (80, 56)), picture(2, (40, 90))], [], [picture(3, (56, 56))]]
    questions = ["What is in the image?", "Is there a dog?", "Describe the images. " * 3]
    texts = [prompt(processor, text, len(held)) for text, held in zip(questions, images, strict=True)]
    if family == "gemma3":
        batch = processor(images=images, text=texts, padding=True, return_tensors="pt")
    else:
        flat = [image for row in images for image in row]
        batch = processor(images=flat, text=texts, padding=True, return_tensors="pt")
    together = positions(model, batch)
    assert together[1] == []
    for row, (held, text) in enumerate(zip(images, texts, strict=True)):
        if not held:
            continue
        single = processor(images=held, text=text, return_tensors="pt")
        shift = batch["input_ids"].shape[1] - single["input_ids"].shape[1]
        assert together[row] == [(column + shift, patch) for column, patch in positions(model, single)[0]]
        assert {patch.image for _, patch in together[row]} == set(range(len(held)))


def test_pan_and_scan_crops_are_tiles_when_their_number_is_known(checkpoint):
    model, processor = load(checkpoint("gemma3"))
    options = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 16}
    image = picture(1, (112, 56))
    inputs = processor(images=image, text=prompt(processor), images_kwargs=options, return_tensors="pt")
    assert {(patch.image, patch.tile) for _, patch in positions(model, inputs)[0]} == {(0, 0), (1, 0), (2, 0)}
    crops = processor.image_processor(image, **options, pan_and_scan_max_num_crops=4,
                                      pan_and_scan_min_ratio_to_activate=1.2)["num_crops"]  # fmt: skip
    told = positions(model, {**inputs, "num_crops": crops})[0]
    assert {(patch.image, patch.tile) for _, patch in told} == {(0, 0), (0, 1), (0, 2)}


def test_a_q_former_has_positions_but_no_grid(checkpoint):
    model, processor = load(checkpoint("instructblip"))
    inputs = processor(images=picture(1), text=prompt(processor), return_tensors="pt")
    assert positions(model, inputs) == [[(column, None) for column in range(8)]]


def test_images_that_do_not_fit_the_placeholders(checkpoint):
    model, processor = load(checkpoint("llava_next"))
    inputs = processor(images=picture(1), text=prompt(processor), return_tensors="pt")
    with pytest.raises(InputError, match="image placeholders") as caught:
        layout(family_of(model.config), model.config, inputs["input_ids"], {})
    assert "image_sizes" in str(caught.value)
    with pytest.raises(InputError, match="image placeholders"):
        layout(family_of(model.config), model.config, inputs["input_ids"][:, :-40], inputs)
    model, processor = load(checkpoint("qwen2_5_vl"))
    inputs = processor(images=picture(1), text=prompt(processor), return_tensors="pt")
    row = layout(family_of(model.config), model.config, inputs["input_ids"], {})[0]
    assert row == [(column, None) for column, _ in positions(model, inputs)[0]]


def test_text_has_no_visual_position(checkpoint):
    for family in GRIDS:
        model, _ = load(checkpoint(family))
        assert layout(
            family_of(model.config), model.config, torch.tensor([[9, 10, 11], [12, 13, 14]]), {}
        ) == [[], []]


def test_unknown_families_take_every_placeholder(checkpoint):
    config = load(checkpoint("llava"))[0].config
    token = config.image_token_id
    ids = torch.tensor([[1, token, 2, token]])
    assert layout(Family("no-such-family"), config, ids, {}) == [[(1, None), (3, None)]]


@given(rows=st.integers(1, 6), cols=st.integers(1, 6), data=st.data())
def test_boxes_of_a_view_tile_the_unit_square(rows, cols, data):
    view = View(rows, cols, row_end=data.draw(st.integers(0, 1)), end=data.draw(st.integers(0, 1)))
    features = list(view.features(0, 0))
    assert len(features) == view.length
    boxes = [patch.box for visual, patch in features if visual]
    assert sum((right - left) * (bottom - top) for left, top, right, bottom in boxes) == pytest.approx(1)
    assert len(set(boxes)) == rows * cols
    assert min(boxes) == (0, 0, 1 / cols, 1 / rows)
    assert Patch(0, 0, rows - 1, cols - 1, rows, cols).box[2:] == (1, 1)
