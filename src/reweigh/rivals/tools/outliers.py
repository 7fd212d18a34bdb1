"""The patches to which the class token of a vision tower attends most, and their features, most attended first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.hooks import outputs_of
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.tower import class_token_tower, has_queries
from reweigh.runtime.decoder import in_range


def class_attention(query: Tensor, key: Tensor, heads: int) -> Tensor:
    """The class token's attention (B, N) to the N patches behind it, the mean of ``heads`` softmaxes, in single precision.

    Args:
        query: Queries (B, 1 + N, C), not yet split into heads.
        key: Keys of the same shape.
    """
    wide = torch.promote_types(query.dtype, torch.float32)  # 16 bits would tie patches
    q, k = (part.to(wide).view(*part.shape[:2], heads, -1).transpose(1, 2) for part in (query, key))
    scores = q[:, :, :1] @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    weights: Tensor = scores.softmax(-1)
    return weights.mean(dim=1)[:, 0, 1:]


class Outliers:
    """Chooses patches by the attention of one vision tower; the options are DAMRO's."""

    def __init__(self, anatomy: Anatomy, keep: int | None, layer: int | None, off_by_one: bool) -> None:
        self.tower = class_token_tower(anatomy)
        config = anatomy.config
        self.queried = has_queries(anatomy)
        self.features = -1 if self.queried else config.vision_feature_layer
        self.has_class = self.queried or config.vision_feature_select_strategy != "default"
        if off_by_one and not self.has_class:
            raise InputError("off_by_one is a slip of InstructBLIP's program alone", hint="leave it out")
        self.shift = self.has_class and not off_by_one
        view = self.tower.config
        usual = 4 if self.queried else 10
        patches = (view.image_size // view.patch_size) ** 2
        self.keep = int(in_range("keep", usual if keep is None else keep, 1, patches))
        blocks = self.tower.encoder.layers
        self.layer = (-2 if self.queried else self.features) if layer is None else layer
        in_range("layer", self.layer, -len(blocks), len(blocks) - 1)
        self.attention: Any = blocks[self.layer].self_attn

    def chosen(self, picture: Tensor) -> Tensor:
        """The features (images, keep, C) of the chosen patches."""
        with outputs_of(self.attention) as seen:
            output = self.tower(picture, output_hidden_states=True, return_dict=True)
        if self.queried:
            features = output.last_hidden_state
            query, key, _ = seen["qkv"].chunk(3, dim=-1)
            attention = class_attention(query, key, self.attention.num_heads)
        else:  # without heads, as the official program has it for LLaVA
            features = output.hidden_states[self.features][:, 0 if self.has_class else 1 :]
            attention = class_attention(seen["q_proj"], seen["k_proj"], 1)
        places = attention.topk(self.keep, dim=1).indices + int(self.shift)
        return features.gather(1, places[..., None].expand(-1, -1, features.shape[-1]))  # type: ignore[no-any-return]
