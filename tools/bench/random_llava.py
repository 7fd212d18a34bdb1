"""A random LLaVA of nearly a billion parameters: its texts are noise, its cost is real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from reweigh.attached import attach
from reweigh.tables.table import ReferenceTable
from tools.bench.generation import Subject

VOCAB = 32000
REGISTERED = 2580
SURE = 6.0
"""Standard deviation of the random model's logits. Its best word then has about the share that a trained model gives it,
and decoders whose work depends on how many words are plausible do as much as they usually do."""


def random_llava(
    new_tokens: int = 100,
    *,
    width: int = 1536,
    blocks: int = 30,
    mlp: int = 4096,
    vocab: int = VOCAB,
    side: int = 24,
) -> Subject:
    """Build a LLaVA of random weights.

    Its head is 5% of its weights, against 2% in a 7B model, so evidence is a larger share of its work than of theirs.
    """
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    torch.manual_seed(0)
    image_token = vocab - 1
    vision = CLIPVisionConfig(
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=14 * side,
        patch_size=14,
    )
    text = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=blocks,
        num_attention_heads=max(1, width // 128),
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=image_token,
        image_seq_length=side * side,
        vision_feature_layer=-1,
    )
    model = LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(SURE / (text.initializer_range * width**0.5))
    model.generation_config.pad_token_id = 0
    words = torch.arange(3, 33).tolist()
    ids = torch.tensor([[1, *words[:15], *[image_token] * (side * side), *words[15:]]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(1, 3, 14 * side, 14 * side),
    }
    attached = attach(model, table=random_table(vocab, blocks - 3), beta=1.1, force=True)
    return Subject("random LLaVA", model, _Words(), inputs, attached, new_tokens)


class _Words:
    """The part of a processor that decoders need to write words of their own: an id for each word."""

    all_special_ids = (0, 1)

    @property
    def tokenizer(self) -> _Words:
        return self

    def __call__(self, text: str, **_options: Any) -> dict[str, list[int]]:
        return {"input_ids": [40 + index for index, _ in enumerate(text.split())]}

    def decode(self, ids: Sequence[int], **_options: Any) -> str:
        return " ".join(map(str, ids))

    def batch_decode(self, rows: Any, **_options: Any) -> list[str]:
        return [self.decode([int(token) for token in row]) for row in rows]


def random_table(vocab: int, layer: int) -> ReferenceTable:
    """A table of random references, of the size of a real one; it belongs to no model."""
    random = np.random.default_rng(0)
    count = min(REGISTERED, vocab // 2)
    tokens = np.sort(random.choice(vocab, count, replace=False)).astype(np.int64)
    references = random.uniform(0, 2e-3, count)
    about = {"identity": {"model_id": "none, references are random"}}
    return ReferenceTable(layer, 1e-3, tokens, references, np.full(count, 10, dtype=np.int64), about)
