"""Families that came with the latest releases of transformers, as bare random models like those of ``more``.

A family that the installed release does not have yet is left out of `NEWEST`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from checkpoints.families import PATCH, SIDE, VOCABULARY, WIDTH, text
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

MOE = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}


def tower(**more: Any) -> dict[str, Any]:
    """The vision settings of the Qwen-VL kin."""
    own = {"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": PATCH}
    return {**own, "out_hidden_size": WIDTH, "num_position_embeddings": 16, **more}


def hybrid(kind: str, **more: Any) -> dict[str, Any]:
    """Qwen3.5's decoder: a block of full attention after some of linear attention."""
    return text(
        kind,
        layer_types=["linear_attention", "full_attention"] * 2,
        head_dim=12,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        rope_parameters=mrope(partial_rotary_factor=1.0, mrope_interleaved=True),
        **more,
    )


def qwen3_5() -> Made:
    config = hf.Qwen3_5Config(vision_config=tower(), text_config=hybrid("qwen3_5_text"), **MARKS)
    return hf.Qwen3_5ForConditionalGeneration(config), flat_patches(6)


def qwen3_5_moe() -> Made:
    decoder = hybrid("qwen3_5_moe_text", shared_expert_intermediate_size=32, **MOE)
    config = hf.Qwen3_5MoeConfig(vision_config=tower(), text_config=decoder, **MARKS)
    return hf.Qwen3_5MoeForConditionalGeneration(config), flat_patches(6)


def qwen3_vl_moe() -> Made:
    decoder = text("qwen3_vl_moe_text", head_dim=12, rope_parameters=mrope(), **MOE)
    vision = tower(deepstack_visual_indexes=[0, 1, 2])
    config = hf.Qwen3VLMoeConfig(vision_config=vision, text_config=decoder, **MARKS)
    return hf.Qwen3VLMoeForConditionalGeneration(config), flat_patches(6)


def qwen3_omni() -> Made:
    decoder = text("qwen3_omni_moe_text", head_dim=12, rope_parameters=mrope(), **MOE)
    audio = {"d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32}
    audio |= {"output_dim": WIDTH, "downsample_hidden_size": 16, "num_mel_bins": 16}
    config = hf.Qwen3OmniMoeThinkerConfig(
        vision_config=tower(deepstack_visual_indexes=[0, 1, 2]),
        text_config=decoder,
        audio_config=audio,
        audio_token_id=9,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    config.vision_start_token_id, config.audio_start_token_id = START, 10
    inputs = flat_patches(6)
    del inputs["mm_token_type_ids"]
    return hf.Qwen3OmniMoeThinkerForConditionalGeneration(config), inputs


def glm4v(config: Any, model: Any, decoder: dict[str, Any]) -> Made:
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": PATCH}
    vision |= {"image_size": 4 * PATCH, "out_hidden_size": WIDTH}
    marks = {"image_token_id": IMAGE, "video_token_id": VIDEO, "image_start_token_id": START}
    marks |= {"image_end_token_id": END, "video_start_token_id": 9, "video_end_token_id": 10}
    return model(config(vision_config=vision, text_config=decoder, **marks)), flat_patches(6)


def glm46v() -> Made:
    decoder = text("glm4v_text", rope_parameters=mrope(partial_rotary_factor=1.0))
    vision = {"model_type": "glm4v_vision"}
    return glm4v(
        lambda vision_config, **more: hf.Glm46VConfig(vision_config={**vision_config, **vision}, **more),
        hf.Glm46VForConditionalGeneration,
        decoder,
    )


def glm4v_moe() -> Made:
    experts = {"moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2}
    decoder = text("glm4v_moe_text", rope_parameters=mrope(partial_rotary_factor=1.0), **experts)
    return glm4v(hf.Glm4vMoeConfig, hf.Glm4vMoeForConditionalGeneration, decoder)


def internvl3_5() -> Made:
    """InternVL3.5: InternVL on Qwen3."""
    vision = {**VISION, "image_size": [SIDE, SIDE], "patch_size": [PATCH, PATCH]}
    config = hf.InternVLConfig(
        vision_config={"model_type": "internvl_vision", **vision},
        text_config=text("qwen3", head_dim=12),
        image_token_id=IMAGE,
        image_seq_length=4,
    )
    inputs = sequence(4, pixel_values=pixels(1, 3, SIDE, SIDE))
    return hf.InternVLForConditionalGeneration(config), inputs


def gemma4() -> Made:
    """Like 31B: no block shares the keys of another, the image is seen in both directions."""
    decoder = text(
        "gemma4_text",
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=0,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=VOCABULARY,
        head_dim=12,
        global_head_dim=12,
        sliding_window=8,
        use_bidirectional_attention="vision",
        pad_token_id=0,
    )
    vision = {**VISION, "num_key_value_heads": 2, "head_dim": 16, "patch_size": PATCH}
    vision |= {"pooling_kernel_size": 2, "position_embedding_size": 64}
    config = hf.Gemma4Config(
        text_config=decoder,
        vision_config=vision,
        audio_config=None,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    grid = torch.tensor([[[column, row] for row in range(4) for column in range(4)]])
    shown = pixels(1, 16, 3 * PATCH**2).sigmoid()
    inputs = sequence(4, pixel_values=shown, image_position_ids=grid)
    marks = (inputs["input_ids"] == IMAGE).int()
    return hf.Gemma4ForConditionalGeneration(config), {**inputs, "mm_token_type_ids": marks}


def gemma4_unified() -> Made:
    """Without a vision tower; the last two of four blocks reuse the keys of earlier ones."""
    decoder = text(
        "gemma4_unified_text",
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2,
        head_dim=12,
        global_head_dim=12,
        sliding_window=8,
        pad_token_id=0,
    )
    vision = {"patch_size": PATCH, "pooling_kernel_size": 1, "mm_posemb_size": 16}
    config = hf.Gemma4UnifiedConfig(
        text_config=decoder,
        vision_config={**vision, "mm_embed_dim": WIDTH, "output_proj_dims": WIDTH},
        audio_config=None,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    grid = torch.tensor([[[column, row] for row in range(2) for column in range(3)]])
    inputs = sequence(6, pixel_values=pixels(1, 6, 3 * PATCH**2).sigmoid(), image_position_ids=grid)
    marks = (inputs["input_ids"] == IMAGE).int()
    return hf.Gemma4UnifiedForConditionalGeneration(config), {**inputs, "mm_token_type_ids": marks}


def molmo2() -> Made:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    vision = {**VISION, **heads, "image_size": [SIDE, SIDE], "patch_size": PATCH}
    adapter = {**heads, "hidden_size": 32, "intermediate_size": 64, "text_hidden_size": WIDTH}
    config = hf.Molmo2Config(
        vision_config=vision,
        adapter_config={**adapter, "vision_feature_layer": [-1, -2]},
        text_config=text("molmo2_text", head_dim=12, additional_vocab_size=0),
        image_patch_id=IMAGE,
        image_start_token_id=START,
        image_end_token_id=END,
    )
    pooling = torch.arange(16).view(2, 2, 2, 2).permute(0, 2, 1, 3).reshape(4, 4)  # two by two
    inputs = sequence(
        4,
        pixel_values=pixels(1, 16, 3 * PATCH**2),
        image_token_pooling=pooling,
        image_grids=torch.tensor([[2, 2, 0, 0]]),
        image_num_crops=torch.tensor([1]),
    )
    return hf.Molmo2ForConditionalGeneration(config), inputs


def minicpmv4_6() -> Made:
    vision = {**VISION, "image_size": 8 * PATCH, "patch_size": PATCH}
    config = hf.MiniCPMV4_6Config(
        vision_config=vision,
        text_config=hybrid("qwen3_5_text"),
        insert_layer_id=1,
        image_size=8 * PATCH,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    patches = pixels(1, 3, PATCH, PATCH * 16)
    inputs = sequence(1, pixel_values=patches, target_sizes=torch.tensor([[4, 4]], dtype=torch.int32))
    return hf.MiniCPMV4_6ForConditionalGeneration(config), inputs


def granite4_vision() -> Made:
    vision = {**VISION, "hidden_size": 64, "model_type": "siglip_vision_model", "vision_use_head": False}
    config = hf.Granite4VisionConfig(
        vision_config={**vision, "image_size": SIDE, "patch_size": PATCH},
        text_config=text("granite4_vision_text", logits_scaling=8.0, residual_multiplier=0.5),
        image_token_index=IMAGE,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        downsample_rate="2/4",
        deepstack_layer_map=[[-1, 0], [-2, 2]],
        spatial_target_layers=[],
        image_grid_pinpoints=[[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE]],
        qformer_config={"model_type": "blip_2_qformer", "num_hidden_layers": 1, "intermediate_size": 64},
    )
    sizes = torch.tensor([[SIDE, 2 * SIDE]])
    inputs = sequence(4 + 2 * (4 + 1), pixel_values=pixels(1, 3, 3, SIDE, SIDE), image_sizes=sizes)
    return hf.Granite4VisionForConditionalGeneration(config), inputs


def granite_docling() -> Made:
    vision = {**VISION, "num_hidden_layers": 3, "image_size": SIDE, "patch_size": PATCH}
    vision |= {"out_hidden_size": WIDTH, "scale_factor": 2, "deepstack_visual_indexes": [0, 1, 2]}
    decoder = text("granite_docling_text", logits_scaling=4.0, pad_token_id=0)
    config = hf.GraniteDoclingConfig(
        vision_config=vision, text_config=decoder, image_token_id=IMAGE, pad_token_id=0
    )
    inputs = sequence(
        4, pixel_values=pixels(1, 1, 3, SIDE, SIDE), pixel_attention_mask=torch.ones(1, 1).bool()
    )
    return hf.GraniteDoclingForConditionalGeneration(config), inputs


def nemotron_h_omni() -> Made:
    """Mamba and attention in turn; the head is that of the language model inside."""
    decoder = {
        "model_type": "nemotron_h",
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "intermediate_size": 96,
        "ssm_state_size": 8,
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "n_groups": 2,
        "chunk_size": 16,
        "use_mamba_kernels": False,
    }
    vision = {"model_type": "radio", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"patch_size": PATCH, "image_size": SIDE, "max_img_size": 8 * PATCH}
    config = hf.NemotronH_Omni_Reasoning_V3_Config(
        text_config=decoder,
        vision_config={**vision, "video_temporal_patch_size": 2},
        vision_hidden_size=32,
        projector_hidden_size=32,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    inputs = sequence(4, pixel_values=pixels(16, 3 * PATCH**2), image_grid_hw=torch.tensor([[4, 4]]))
    return hf.NemotronH_Omni_Reasoning_V3(config), inputs


BUILDERS: dict[str, tuple[Callable[[], Made], str]] = {
    "gemma4_31b": (gemma4, "Gemma4Config"),
    "gemma4_unified": (gemma4_unified, "Gemma4UnifiedConfig"),
    "glm46v": (glm46v, "Glm46VConfig"),
    "glm4v_moe": (glm4v_moe, "Glm4vMoeConfig"),
    "granite4_vision": (granite4_vision, "Granite4VisionConfig"),
    "granite_docling": (granite_docling, "GraniteDoclingConfig"),
    "internvl3_5": (internvl3_5, "InternVLConfig"),
    "minicpmv4_6": (minicpmv4_6, "MiniCPMV4_6Config"),
    "molmo2": (molmo2, "Molmo2Config"),
    "nemotron_h_omni": (nemotron_h_omni, "NemotronH_Omni_Reasoning_V3_Config"),
    "qwen3_5": (qwen3_5, "Qwen3_5Config"),
    "qwen3_5_moe": (qwen3_5_moe, "Qwen3_5MoeConfig"),
    "qwen3_omni_moe_thinker": (qwen3_omni, "Qwen3OmniMoeThinkerConfig"),
    "qwen3_vl_moe": (qwen3_vl_moe, "Qwen3VLMoeConfig"),
}
NEWEST: dict[str, Callable[[], Made]] = {
    name: build for name, (build, config) in BUILDERS.items() if hasattr(hf, config)
}
