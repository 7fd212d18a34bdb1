"""Read answers from the output of ``generate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.answer import Answer, decode
from reweigh.families.processor import tokenizer_of


def read_answers(processor: Any, output: Any, inputs: Mapping[str, Any], ends: Sequence[int]) -> list[Answer]:
    """Read the answers from the output of ``generate``: a tensor, or an object with ``sequences``."""
    sequences: Tensor = getattr(output, "sequences", output)
    prompt = inputs["input_ids"]
    said = sequences[:, prompt.shape[1] :]
    texts = [decode(tokenizer_of(processor), row) for row in said.tolist()]
    mask = inputs.get("attention_mask", torch.ones_like(prompt))
    lengths = mask.sum(dim=1).repeat_interleave(len(said) // len(prompt)).tolist()
    answers = []
    for text, row, length in zip(texts, said.tolist(), lengths, strict=True):
        stop = next((index + 1 for index, token in enumerate(row) if token in ends), len(row))
        answers.append(Answer(text.strip(), tuple(row[:stop]), length))
    return answers


def end_tokens(language_model: Any) -> list[int]:
    """Return the tokens that end an answer, by the model's generation settings."""
    ends = language_model.generation_config.eos_token_id
    return [] if ends is None else (list(ends) if isinstance(ends, list | tuple) else [ends])
