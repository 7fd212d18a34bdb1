"""Families beyond the six, as bare random models with made-up inputs: enough to test wiring, not processors.

`MORE` maps a family's name to a function that returns ``(model, inputs)``; `more` perturbs the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from checkpoints.families import PATCH, SIDE, VOCABULARY, WIDTH, clip_vision, text
from checkpoints.newest import NEWEST
from checkpoints.noise import perturb
from checkpoints.parts import (
    END,
    IMAGE,
    MARKS,
    START,
    VIDEO,
    VISION,
    Made,
    flat_patches,
    mrope,
    pixels,
    sequence,
)


def siglip() -> dict[str, Any]:
    """A SigLIP tower of 4 x 4 patches."""
    return {
        **VISION,
        "model_type": "siglip_vision_model",
        "image_size": SIDE,
        "patch_size": PATCH,
        "vision_use_head": False,
    }


def qwen2_vl() -> Made:
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": WIDTH, "num_heads": 2, "patch_size": PATCH}
    decoder = text("qwen2_vl_text", rope_parameters=mrope())
    config = hf.Qwen2VLConfig(vision_config=vision, text_config=decoder, **MARKS)
    return hf.Qwen2VLForConditionalGeneration(config), flat_patches(6)


def qwen3_vl() -> Made:
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": PATCH,
        "out_hidden_size": WIDTH,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0, 1, 2],
    }
    decoder = text("qwen3_vl_text", head_dim=12, rope_parameters=mrope())
    config = hf.Qwen3VLConfig(vision_config=vision, text_config=decoder, **MARKS)
    return hf.Qwen3VLForConditionalGeneration(config), flat_patches(6)


def glm4v() -> Made:
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "image_size": 4 * PATCH,
        "patch_size": PATCH,
        "out_hidden_size": WIDTH,
    }
    decoder = text("glm4v_text", rope_parameters=mrope(partial_rotary_factor=1.0))
    marks = {"image_token_id": IMAGE, "video_token_id": VIDEO, "image_start_token_id": START}
    ends = {"image_end_token_id": END, "video_start_token_id": 9, "video_end_token_id": 10}
    config = hf.Glm4vConfig(vision_config=vision, text_config=decoder, **marks, **ends)
    return hf.Glm4vForConditionalGeneration(config), flat_patches(6)


def paligemma() -> Made:
    config = hf.PaliGemmaConfig(
        vision_config=siglip(),
        text_config=text("gemma", head_dim=12),
        image_token_index=IMAGE,
        projection_dim=WIDTH,
        hidden_size=WIDTH,
    )
    inputs = sequence(16, pixel_values=pixels(1, 3, SIDE, SIDE))
    inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    return hf.PaliGemmaForConditionalGeneration(config), inputs


def mistral3() -> Made:
    vision = {**VISION, "model_type": "pixtral", "image_size": SIDE, "patch_size": PATCH}
    config = hf.Mistral3Config(
        vision_config=vision,
        text_config=text("mistral", head_dim=12, sliding_window=None),
        image_token_index=IMAGE,
        spatial_merge_size=2,
    )
    sizes = torch.tensor([[SIDE, SIDE]])
    return hf.Mistral3ForConditionalGeneration(config), sequence(
        4, pixel_values=pixels(1, 3, SIDE, SIDE), image_sizes=sizes
    )


def idefics3() -> Made:
    vision = {**VISION, "image_size": SIDE, "patch_size": PATCH}
    config = hf.Idefics3Config(
        vision_config=vision, text_config=text("llama", pad_token_id=0), image_token_id=IMAGE, scale_factor=2
    )
    return hf.Idefics3ForConditionalGeneration(config), sequence(4, pixel_values=pixels(1, 1, 3, SIDE, SIDE))


def smolvlm() -> Made:
    vision = {**VISION, "image_size": SIDE, "patch_size": PATCH}
    config = hf.SmolVLMConfig(
        vision_config=vision, text_config=text("llama", pad_token_id=0), image_token_id=IMAGE, scale_factor=2
    )
    return hf.SmolVLMForConditionalGeneration(config), sequence(8, pixel_values=pixels(1, 2, 3, SIDE, SIDE))


def llava_onevision() -> Made:
    config = hf.LlavaOnevisionConfig(
        vision_config=siglip(),
        text_config=text("qwen2"),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_grid_pinpoints=[[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE]],
    )
    sizes = torch.tensor([[2 * SIDE, 2 * SIDE]])
    features = 16 + 8 * (8 + 1)  # base view, then eight rows of eight with a newline each
    return hf.LlavaOnevisionForConditionalGeneration(config), sequence(
        features, pixel_values=pixels(1, 5, 3, SIDE, SIDE), image_sizes=sizes
    )


def llava_next_video() -> Made:
    config = hf.LlavaNextVideoConfig(
        vision_config=clip_vision(),
        text_config=text("llama", pad_token_id=0),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_grid_pinpoints=[[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE]],
    )
    sizes = torch.tensor([[SIDE, 2 * SIDE]])
    features = 16 + 4 * (8 + 1)
    return hf.LlavaNextVideoForConditionalGeneration(config), sequence(
        features, pixel_values=pixels(1, 3, 3, SIDE, SIDE), image_sizes=sizes
    )


def aya_vision() -> Made:
    config = hf.AyaVisionConfig(
        vision_config=siglip(), text_config=text("cohere2", sliding_window=32), image_token_index=IMAGE
    )
    return hf.AyaVisionForConditionalGeneration(config), sequence(4, pixel_values=pixels(1, 3, SIDE, SIDE))


def cohere2_vision() -> Made:
    config = hf.Cohere2VisionConfig(
        vision_config=siglip(),
        text_config=text("cohere2", sliding_window=32),
        image_token_id=IMAGE,
        alignment_intermediate_size=64,
    )
    return hf.Cohere2VisionForConditionalGeneration(config), sequence(
        4, pixel_values=pixels(1, 3, SIDE, SIDE)
    )


def vipllava() -> Made:
    config = hf.VipLlavaConfig(
        vision_config=clip_vision(),
        text_config=text("llama", kv_heads=4),
        image_token_index=IMAGE,
        vision_feature_layers=[-1, -2],
    )
    return hf.VipLlavaForConditionalGeneration(config), sequence(16, pixel_values=pixels(1, 3, SIDE, SIDE))


def ovis2() -> Made:
    vision = {**VISION, "image_size": SIDE, "patch_size": PATCH, "vocab_size": 64, "hidden_stride": 2}
    config = hf.Ovis2Config(
        vision_config=vision,
        text_config=text("qwen2"),
        image_token_id=IMAGE,
        visual_indicator_token_ids=[9, 10, 11, 12, 13],
        vocab_size=text("qwen2")["vocab_size"],
        hidden_size=WIDTH,
    )
    return hf.Ovis2ForConditionalGeneration(config), sequence(4, pixel_values=pixels(1, 3, SIDE, SIDE))


def blip_2() -> Made:
    queries = {**VISION, "vocab_size": 64, "encoder_hidden_size": 32}
    decoder = text("opt", ffn_dim=96, word_embed_proj_dim=WIDTH)
    config = hf.Blip2Config(
        vision_config={**VISION, "image_size": SIDE, "patch_size": PATCH},
        qformer_config=queries,
        text_config=decoder,
        num_query_tokens=8,
        image_token_index=IMAGE,
    )
    return hf.Blip2ForConditionalGeneration(config), sequence(8, pixel_values=pixels(1, 3, SIDE, SIDE))


def aria() -> Made:
    vision = {**VISION, "model_type": "idefics3_vision", "image_size": SIDE, "patch_size": PATCH}
    config = hf.AriaConfig(
        vision_config=vision,
        text_config=text(
            "aria_text", moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1, pad_token_id=0
        ),
        image_token_index=IMAGE,
        projector_patch_to_query_dict={16: 6},
    )
    mask = torch.ones(1, SIDE, SIDE, dtype=torch.bool)
    return hf.AriaForConditionalGeneration(config), sequence(
        6, pixel_values=pixels(1, 3, SIDE, SIDE), pixel_mask=mask
    )


def llama4() -> Made:
    vision = {
        **VISION,
        "image_size": SIDE,
        "patch_size": PATCH,
        "intermediate_size": 128,
        "vision_output_dim": 32,
        "projector_input_dim": 32,
        "projector_output_dim": 32,
    }
    decoder = text(
        "llama4_text",
        head_dim=12,
        intermediate_size_mlp=96,
        num_local_experts=2,
        interleave_moe_layer_step=2,
        attention_chunk_size=64,
        pad_token_id=0,
    )
    config = hf.Llama4Config(vision_config=vision, text_config=decoder, image_token_index=IMAGE)
    return hf.Llama4ForConditionalGeneration(config), sequence(4, pixel_values=pixels(1, 3, SIDE, SIDE))


def got_ocr2() -> Made:
    vision = {
        **{key: value for key, value in VISION.items() if key != "intermediate_size"},
        "image_size": 8 * PATCH,
        "patch_size": PATCH,
        "output_channels": 16,
        "window_size": 4,
        "global_attn_indexes": [1],
        "mlp_dim": 64,
    }
    config = hf.GotOcr2Config(vision_config=vision, text_config=text("qwen2"), image_token_index=IMAGE)
    return hf.GotOcr2ForConditionalGeneration(config), sequence(
        4, pixel_values=pixels(1, 3, 8 * PATCH, 8 * PATCH)
    )


def deepseek_vl() -> Made:
    config = hf.DeepseekVLConfig(
        vision_config={**siglip(), "vision_use_head": True},
        text_config=text("llama", kv_heads=4, pad_token_id=0),
        image_token_id=IMAGE,
    )
    return hf.DeepseekVLForConditionalGeneration(config), sequence(16, pixel_values=pixels(1, 3, SIDE, SIDE))


def fuyu() -> Made:
    config = hf.FuyuConfig(
        text_config=text("persimmon", kv_heads=4),
        image_size=SIDE,
        patch_size=PATCH,
        image_token_id=IMAGE,
    )
    return hf.FuyuForCausalLM(config), sequence(6, pixel_values=pixels(1, 6, 3 * PATCH**2))


def lfm2_vl() -> Made:
    vision = {**VISION, "model_type": "siglip2_vision_model", "patch_size": PATCH, "num_patches": 16}
    decoder = text("lfm2", layer_types=["conv", "full_attention", "conv", "full_attention"], pad_token_id=0)
    config = hf.Lfm2VlConfig(
        vision_config={**vision, "vision_use_head": False},
        text_config=decoder,
        image_token_id=IMAGE,
        projector_hidden_size=32,
    )
    return hf.Lfm2VlForConditionalGeneration(config), sequence(
        4,
        pixel_values=pixels(1, 16, 3 * PATCH**2),
        spatial_shapes=torch.tensor([[4, 4]]),
        pixel_attention_mask=torch.ones(1, 16, dtype=torch.long),
    )


def gemma4() -> Made:
    """Like the E-series: the last two of four blocks reuse the keys of earlier ones."""
    decoder = text(
        "gemma4_text",
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCABULARY,
        head_dim=12,
        global_head_dim=12,
        sliding_window=8,
        pad_token_id=0,
    )
    config = hf.Gemma4Config(
        text_config=decoder,
        vision_config={
            **VISION,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "patch_size": PATCH,
            "pooling_kernel_size": 2,
            "position_embedding_size": 64,
        },
        audio_config=None,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    grid = torch.tensor([[[column, row] for row in range(4) for column in range(4)]])
    inputs = sequence(4, pixel_values=pixels(1, 16, 3 * PATCH**2).sigmoid(), image_position_ids=grid)
    marks = (inputs["input_ids"] == IMAGE).int()
    return hf.Gemma4ForConditionalGeneration(config), {**inputs, "mm_token_type_ids": marks}


MORE: dict[str, Callable[[], Made]] = {
    "aria": aria,
    "aya_vision": aya_vision,
    "blip-2": blip_2,
    "cohere2_vision": cohere2_vision,
    "deepseek_vl": deepseek_vl,
    "fuyu": fuyu,
    "gemma4": gemma4,
    "glm4v": glm4v,
    "got_ocr2": got_ocr2,
    "idefics3": idefics3,
    "lfm2_vl": lfm2_vl,
    "llama4": llama4,
    "llava_next_video": llava_next_video,
    "llava_onevision": llava_onevision,
    "mistral3": mistral3,
    "ovis2": ovis2,
    "paligemma": paligemma,
    "qwen2_vl": qwen2_vl,
    "qwen3_vl": qwen3_vl,
    "smolvlm": smolvlm,
    "vipllava": vipllava,
    **NEWEST,
}


def more(family: str) -> Made:
    """A perturbed model of ``family`` in evaluation mode, and inputs that hold one image."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, inputs = MORE[family]()
    return perturb(model, seed=len(family)), inputs
