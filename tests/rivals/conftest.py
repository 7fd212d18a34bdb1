"""What generate shows to its processors, and an oracle that knows no cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor


class Recorder(LogitsProcessor):
    """Notes the sequences and scores that generate shows to its processors."""

    def __init__(self) -> None:
        self.ids: list[torch.Tensor] = []
        self.scores: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.ids.append(input_ids.clone())
        self.scores.append(scores.clone())
        return scores


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def answer(model: Any, inputs: dict[str, Any], tokens: torch.Tensor) -> torch.Tensor:
    """Next-token logits (B, V) after ``tokens`` (B, n), by a fresh prefill of prompt and tokens."""
    longer = dict(inputs)
    longer["input_ids"] = torch.cat([inputs["input_ids"], tokens], dim=1)
    for name in ("attention_mask", "mm_token_type_ids", "token_type_ids"):
        if name in inputs:
            fill = torch.ones_like(tokens) if name == "attention_mask" else torch.zeros_like(tokens)
            longer[name] = torch.cat([inputs[name], fill], dim=1)
    if "pixel_values" not in longer and hasattr(model, "qformer"):
        model = model.language_model
    output = model.generate(
        **longer, max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    return output.logits[0]


@pytest.fixture(name="answer")
def _answer() -> Callable[..., torch.Tensor]:
    return answer
