"""DAMRO: the choice of patches against NumPy, the branch against embeddings built by hand, the refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reweigh
from checkpoints import picture
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.rivals.damro import class_attention, class_token_tower

SERVED = ("llava", "llava_next", "instructblip")
PLAIN = {"do_sample": False, "max_new_tokens": 3, "return_dict_in_generate": True, "output_logits": True}


def softmax(row):
    return np.exp(row - row.max()) / np.exp(row - row.max()).sum()


@settings(max_examples=30)
@given(st.integers(1, 3), st.integers(1, 6), st.sampled_from([1, 2, 4]), st.integers(0, 99))
def test_class_attention(images, patches, heads, seed):
    draw = np.random.default_rng(seed)
    q, k = (draw.normal(size=(images, patches + 1, 8)) for _ in range(2))
    found = class_attention(torch.tensor(q), torch.tensor(k), heads).numpy()
    size = 8 // heads
    for image in range(images):
        shares = np.zeros(patches + 1)
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            shares += softmax(k[image][:, part] @ q[image][0, part] / math.sqrt(size)) / heads
        np.testing.assert_allclose(found[image], shares[1:], atol=1e-12)


def test_half_precision_ties_no_patches():
    """The most attended come first, so that patches which 16 bits cannot tell apart would come in any order."""
    draw = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 577, 64, generator=draw).bfloat16() for _ in range(2))
    shares = (query[0, :1].double() @ key[0].double().T / 8).softmax(-1)[0, 1:]
    found = class_attention(query, key, 1)[0]
    assert found.topk(40).indices.tolist() == shares.topk(40).indices.tolist()


def parts_by_hand(model, family, pixels, keep):
    """The chosen features (images, keep, C), from hidden states alone, without any hook."""
    tower = model.vision_model if family == "instructblip" else model.model.vision_tower
    with torch.no_grad():
        output = tower(pixels[:, 0] if pixels.ndim == 5 else pixels, output_hidden_states=True)
        states = output.hidden_states
        count = len(tower.encoder.layers)
        block = tower.encoder.layers[count - 2]
        before = states[count - 2]  # what the block before the last reads
        normed = block.layer_norm1(before)
        if family == "instructblip":
            q, k, _ = (
                block.self_attn.qkv(normed)
                .double()
                .numpy()
                .reshape(*before.shape[:2], 3, -1)
                .transpose(2, 0, 1, 3)
            )
            heads, features = block.self_attn.num_heads, output.last_hidden_state
        else:
            q, k = (getattr(block.self_attn, name)(normed).double().numpy() for name in ("q_proj", "k_proj"))
            heads, features = 1, states[count - 1]
    size, chosen = q.shape[-1] // heads, []
    for image in range(len(q)):
        shares = sum(
            softmax(k[image][:, part] @ q[image][0, part] / math.sqrt(size))
            for part in (slice(head * size, (head + 1) * size) for head in range(heads))
        )
        order = sorted(range(1, len(shares)), key=lambda place: -shares[place])[
            :keep
        ]  # counted with the class token
        chosen.append(features[image][[place - (family == "instructblip") for place in order]])
    return torch.stack(chosen)


@torch.no_grad()
def visual_by_hand(model, family, inputs, chosen):
    if family != "instructblip":
        shown = model.model.multi_modal_projector(chosen)
        if family == "llava_next":
            shown = torch.cat([shown, model.model.image_newline.expand(len(shown), 1, -1)], dim=1)
        return shown
    queries = model.query_tokens.expand(len(chosen), -1, -1)
    ids, mask = inputs["qformer_input_ids"], inputs["qformer_attention_mask"]
    whole = torch.cat([torch.ones(queries.shape[:2], dtype=mask.dtype), mask], dim=1)
    out = model.qformer(
        input_ids=ids, attention_mask=whole, query_embeds=queries, encoder_hidden_states=chosen
    )
    return model.language_projection(out.last_hidden_state[:, : queries.shape[1]])


@torch.no_grad()
def reference_by_hand(model, family, inputs, visual, row, tokens):
    """Next-token logits after text, chosen vectors and tokens, of one unpadded row."""
    ids = inputs["input_ids"][row][inputs["attention_mask"][row].bool()]
    image = (ids == model.config.image_token_id).nonzero().flatten()
    text = model.get_input_embeddings()
    states = torch.cat([text(ids[: image[0]]), visual[row], text(ids[image[-1] + 1 :]), text(tokens)])
    speaker = model.language_model if family == "instructblip" else model
    return speaker(inputs_embeds=states[None]).logits[0, -1]


@pytest.mark.parametrize("family", SERVED)
def test_a_step_contrasts_with_the_most_attended_patches(family, loaded, batch, answer):
    model, processor = loaded(family)
    inputs = batch(family, rows=(0, 2)) if family == "instructblip" else batch(family)
    with reweigh.decoder("damro", model, processor, alpha=1.5, beta=0.2, keep=3):
        found = model.generate(**inputs, **PLAIN)
    chosen = parts_by_hand(model, family, inputs["pixel_values"], 3)
    visual = visual_by_hand(model, family, inputs, chosen)
    for step, logits in enumerate(found.logits):
        tokens = found.sequences[:, inputs["input_ids"].shape[1] :][:, :step]
        main = answer(model, inputs, tokens)
        for row in range(2):
            a = main[row]
            r = reference_by_hand(model, family, inputs, visual, row, tokens[row])
            keep = ~(a < a.max() + math.log(0.2))
            wanted = torch.where(keep, 2.5 * a - 1.5 * r, torch.tensor(-math.inf))
            close = (a - a.max() - math.log(0.2)).abs() < 1e-4
            torch.testing.assert_close(logits[row][~close], wanted[~close], atol=3e-3, rtol=1e-3)


def test_defaults_are_the_official_ones(loaded):
    for family, keep in zip(SERVED, (10, 10, 4), strict=True):
        decoder = reweigh.decoder("damro", *loaded(family)).decoder
        assert (decoder.alpha, decoder.beta) == (2.0, 0.1)
        assert (decoder.keep, decoder.layer) == (keep, -2)
        assert decoder.regime["do_sample"]


def test_features_with_the_class_token_are_off_by_one(loaded, batch):
    """Patch i is taken for feature i, which is the patch before it where the class token comes first."""
    model, processor = loaded("llava")
    pixels = batch("llava")["pixel_values"]
    with torch.no_grad():
        outliers = reweigh.decoder("damro", model, processor).decoder
        usual = outliers.choose(pixels)
        features = outliers.tower(pixels, output_hidden_states=True).hidden_states[-2]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model.config, "vision_feature_select_strategy", "full")
            slipped = reweigh.decoder("damro", model, processor).decoder.choose(pixels)
    for image in range(len(pixels)):
        places = [int((features[image] == one).all(dim=-1).nonzero()[0]) for one in usual[image]]
        assert torch.equal(slipped[image], features[image][[place - 1 for place in places]])


def test_two_images_in_one_prompt(loaded):
    model, processor = loaded("llava")
    pictures = [picture(1), picture(2)]
    text = "USER: <image>\nand <image>\nwhat? ASSISTANT:"
    inputs = processor(text=text, images=pictures, return_tensors="pt")
    attached = reweigh.decoder("damro", model, processor, keep=2)
    kept, make = [], attached.decoder.branch_inputs
    attached.decoder.branch_inputs = lambda forward: kept.append(make(forward)) or dict(kept[-1])
    with attached:
        model.generate(**inputs, **PLAIN)
    assert int((kept[0]["input_ids"] == model.config.image_token_id).sum()) == 4
    beside = processor(text=text.replace("\nand ", ""), images=pictures, return_tensors="pt")
    with attached, pytest.raises(UnsupportedError, match="2 images"):
        model.generate(**beside, **PLAIN)


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("qwen2_5_vl", "class token"),
        ("gemma3", "class token"),
        ("internvl", "patch"),
    ],
)
def test_families_without_such_patches_are_refused_by_name(family, reason, loaded):
    with pytest.raises(UnsupportedError, match=reason):
        reweigh.decoder("damro", *loaded(family))


def test_towers_without_a_class_token_are_refused(loaded):
    anatomy = find_anatomy(loaded("llava")[0])
    siglip, pixtral = torch.nn.Module(), torch.nn.Module()
    siglip.embeddings = torch.nn.Module()
    for tower in (siglip, pixtral):
        model = SimpleNamespace(model=SimpleNamespace(vision_tower=tower))
        with pytest.raises(UnsupportedError, match="class token"):
            class_token_tower(replace(anatomy, model=model))


def test_joined_features_and_wrong_options_are_refused(loaded):
    model, processor = loaded("llava")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.config, "vision_feature_layer", [-2, -1])
        with pytest.raises(UnsupportedError, match="several blocks"):
            reweigh.decoder("damro", model, processor)
    with pytest.raises(InputError, match="keep"):
        reweigh.decoder("damro", model, processor, keep=17)
