"""A Llama decoder written out: attention by hand, so that an edit of its scores has an independent twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb


def embedded(model: Any, inputs: dict[str, Any], tokens: torch.Tensor | None = None) -> torch.Tensor:
    """The embeddings (1, T, d) of a LLaVA prompt of one row, image included, and of further tokens."""
    ids = inputs["input_ids"] if tokens is None else torch.cat([inputs["input_ids"], tokens], dim=1)
    states = model.get_input_embeddings()(ids)
    picture = model.model.get_image_features(inputs["pixel_values"], return_dict=True).pooler_output
    features = torch.cat(list(picture)) if isinstance(picture, list | tuple) else picture.flatten(0, 1)
    visual = ids == model.config.image_token_id
    visual[:, inputs["input_ids"].shape[1] :] = False  # said by the model, not shown to it
    states[visual] = features
    return states


@torch.no_grad()
def forward(
    model: Any,
    states: torch.Tensor,
    score: Callable[[int, torch.Tensor], torch.Tensor] = lambda layer, scores: scores,
    look: Callable[[int, torch.Tensor], None] = lambda layer, weights: None,
    mlp: Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor] = lambda layer, x, out: out,
    after: Callable[[int, torch.Tensor], torch.Tensor] = lambda layer, states: states,
) -> torch.Tensor:
    """Logits (1, T, V); ``score`` may change the masked scores (1, H, T, T) of a block before the softmax.

    ``mlp`` may change an MLP's output, given its input, and ``after`` the stream after a block.
    """
    decoder = model.model.language_model
    length = states.shape[1]
    angles = decoder.rotary_emb(states, torch.arange(length)[None])
    future = torch.full((length, length), torch.finfo(states.dtype).min).triu(1)
    for number, block in enumerate(decoder.layers):
        attention, normed = block.self_attn, block.input_layernorm(states)
        shape = (1, length, -1, attention.head_dim)
        q, k, v = (
            part(normed).view(shape).transpose(1, 2)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        q, k = apply_rotary_pos_emb(q, k, *angles)
        scores = score(number, q @ k.transpose(2, 3) / attention.head_dim**0.5 + future)
        weights = scores.softmax(-1)
        look(number, weights)
        mixed = (weights @ v).transpose(1, 2).reshape(1, length, -1)
        states = states + attention.o_proj(mixed)
        x = block.post_attention_layernorm(states)
        states = after(number, states + mlp(number, x, block.mlp(x)))
    return model.lm_head(decoder.norm(states))
