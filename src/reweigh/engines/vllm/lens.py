"""The lens of a model inside vLLM: its final norm and its own way from states to logits.

``compute_logits`` gathers the vocabulary over tensor-parallel ranks, drops padded rows and runs a quantised head; scale and
soft cap inside it are monotone and change no rank.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from reweigh.errors import UnsupportedError
from reweigh.method.lens import CHUNK, Lens


class _Head(nn.Module):
    """A model's ``compute_logits`` as the head of a lens."""

    def __init__(self, model: Any, rows: int, width: int) -> None:
        super().__init__()
        self.compute = model.compute_logits
        self.out_features, self.in_features = rows, width

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.compute(states)
        return logits


def vllm_lens(model: Any, decoder: Any, vocab_size: int, dtype: str, made_with: dict[str, Any]) -> Lens:
    """The lens a table was made with, through the modules of a vLLM model of ``dtype``."""
    if made_with.get("lens") == "float32" and dtype != "float32":
        raise UnsupportedError(
            f"this table ranks float32 logits, but vLLM runs the model in {dtype}",
            hint="calibrate with native logits (the default), or serve with --dtype float32",
        )
    head = _Head(model, vocab_size, decoder.norm.weight.shape[0])
    return Lens(decoder.norm, head, chunk=made_with.get("chunk", CHUNK))
