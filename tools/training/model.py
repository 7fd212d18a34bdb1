"""The shape of the embedded model: a plain LLaVA (CLIP vision tower, two-layer projector, Llama decoder).

Head size is 32 and embeddings are tied; everything else is the released architecture at a small scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reweigh.world.scenes import SIZE
from tools.training.labels import PATCHES


@dataclass(frozen=True)
class Shape:
    """Widths and depths; the defaults are those of the shipped checkpoint."""

    width: int = 192
    vision_blocks: int = 4
    vision_mlp: int = 768
    blocks: int = 5
    mlp: int = 512
    heads: int = 6


SHIPPED = Shape()
MEAN, STD = 0.5, 0.25
"""Pixel normalization, the same for the three channels."""


def vision_config(shape: Shape) -> Any:
    from transformers import CLIPVisionConfig

    return CLIPVisionConfig(
        hidden_size=shape.width,
        intermediate_size=shape.vision_mlp,
        num_hidden_layers=shape.vision_blocks,
        num_attention_heads=shape.heads,
        image_size=SIZE,
        patch_size=SIZE // PATCHES,
        projection_dim=shape.width,
        hidden_act="gelu",
    )


def llava_config(shape: Shape, vocabulary: int, image_token: int) -> Any:
    """The whole model's configuration; ids 0, 1, 2 are padding, start and end."""
    from transformers import LlamaConfig, LlavaConfig

    text = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.blocks,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlavaConfig(
        vision_config=vision_config(shape),
        text_config=text,
        image_token_index=image_token,
        image_seq_length=PATCHES * PATCHES,
        projector_hidden_act="gelu",
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
