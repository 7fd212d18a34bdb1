"""Families beyond the six: each block is read and edited, and what cannot be read is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf

import reweigh
from checkpoints.families import PATCH, text
from checkpoints.more import MORE, more
from checkpoints.newest import BUILDERS
from checkpoints.parts import IMAGE, VISION, sequence
from generating import run
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.tables.table import ReferenceTable

CONTROLS = {"llava_onevision": 8, "llava_next_video": 4, "granite4_vision": 2}
"""Newlines under the image's placeholder."""


@pytest.mark.parametrize("family", sorted({*MORE, *BUILDERS}))
def test_every_block_is_read_and_edited(family):
    if family not in MORE:
        pytest.skip(f"transformers {hf.__version__} does not have {family} yet")
    model, inputs = more(family)
    anatomy = find_anatomy(model)
    plain = run(model, inputs, steps=3).logits
    positions = (inputs["input_ids"] == IMAGE)[0].nonzero().flatten().tolist()
    for layer in range(len(anatomy.blocks)):
        tokens, ones = np.arange(anatomy.rows), np.ones(anatomy.rows)
        # references far above what anything can reach, so that every candidate is suppressed
        about = {"identity": {"model_id": "made up"}}
        table = ReferenceTable(layer, 0.5, tokens, ones, ones.astype(int), about)
        rw = reweigh.attach(model, None, table=table, beta=3.0, force=True)
        with rw.using() as request:
            edited = run(model, inputs, steps=3).logits
        read = set(request.evidence[0].positions)
        assert read <= set(positions)
        assert len(read) == len(positions) - CONTROLS.get(family, 0)
        assert (plain[0] - edited[0]).abs().max() > 1.0
        with rw.using(beta=0.0):
            same = run(model, inputs, steps=3).logits
        for one, other in zip(plain, same, strict=True):
            # transformers 5.23 runs blocks that share keys for fewer columns, which rounds otherwise
            gap = 1e-5 if anatomy.shares_keys else 0.0
            torch.testing.assert_close(one, other, rtol=0.0, atol=gap)


def test_granites_newlines_are_where_its_processor_puts_them():
    """The learned newline ends each row of the high-resolution view, downsampled as the features are."""
    model, inputs = more("granite4_vision")
    newline = torch.full_like(model.model.image_newline, 7.5)
    model.model.image_newline.data.copy_(newline)
    seen = []
    block = model.model.language_model.layers[0]
    hook = block.register_forward_pre_hook(
        lambda _, args, given: seen.append(args[0] if args else given["hidden_states"]), with_kwargs=True
    )
    [found] = reweigh.measure(model, inputs)
    hook.remove()
    held = (inputs["input_ids"] == IMAGE)[0].nonzero().flatten().tolist()
    content = [at for at in held if not torch.allclose(seen[0][0, at], newline)]
    assert list(found.positions) == content
    assert len(content) == len(held) - 2


def test_a_model_without_an_image_token_says_how_to_name_it():
    model, inputs = more("minicpmv4_6")
    model.config.image_token_id = model.config.video_token_id = None
    with pytest.raises(UnsupportedError, match="names no image token") as caught:
        find_anatomy(model)
    assert "model.config.image_token_id = processor.image_token_id" in caught.value.hint
    model.config.image_token_id = IMAGE
    assert reweigh.measure(model, inputs)[0] is not None


def test_block_diffusion_is_refused_wherever_a_model_is_read():
    vision = {
        **VISION,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "patch_size": PATCH,
        "pooling_kernel_size": 2,
    }
    experts = {"num_experts": 2, "top_k_experts": 1, "moe_intermediate_size": 32, "global_head_dim": 12}
    config = hf.DiffusionGemmaConfig(
        text_config=text("diffusion_gemma_text", head_dim=12, **experts),
        vision_config={"model_type": "gemma4_vision", **vision},
        image_token_id=IMAGE,
    )
    with torch.device("meta"):
        model = hf.DiffusionGemmaForBlockDiffusion(config)
    for use in (
        lambda: find_anatomy(model),
        lambda: reweigh.measure(model, sequence(4)),
        lambda: reweigh.attach(model, None, table="nowhere"),
    ):
        with pytest.raises(UnsupportedError, match="by diffusion"):
            use()
