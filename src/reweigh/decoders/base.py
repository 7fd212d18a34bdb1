"""What every decoder is: a listener on the tap with a name, a regime and options.

A decoder looks at each forward pass of the model and may return other logits; penalties, sampling and beams of
``generate`` come after it. Knows no method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from reweigh.engines.transformers.tap import Glimpse
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy

GREEDY: Mapping[str, Any] = {"do_sample": False, "num_beams": 1}
SAMPLING: Mapping[str, Any] = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
"""Plain sampling; ``top_k=0`` because transformers would otherwise keep 50 tokens."""


class Decoder:
    """Base of the decoders: an untouched ``generate``.

    Attributes:
        needs_image: Whether the method is about images; without it a text-only model will do.
        generation: Keyword defaults that the method gives to ``generate``; what the caller passes wins.
        regime: The regime in which the method's authors decode, for comparisons.
        layers: Blocks whose output it reads; -1 is the input of the first block.
    """

    needs_image: ClassVar[bool] = True
    generation: Mapping[str, Any] = {}
    regime: Mapping[str, Any] = GREEDY
    layers: frozenset[int] = frozenset()

    def __init__(self, anatomy: Anatomy, processor: Any = None) -> None:
        self.anatomy = anatomy
        self.processor = processor

    def listen(self, glimpse: Glimpse) -> Tensor | None:
        """Look at one forward pass; return logits (B, K, V) in place of the raw ones, or ``None``."""
        return None


def in_range(name: str, value: float, low: float, high: float = float("inf")) -> float:
    """Check an option's range; the message names the option."""
    if not low <= value <= high:
        raise InputError(f"{name} is {value}, but must be from {low:g} to {high:g}")
    return value


def edited_columns(glimpse: Glimpse) -> int:
    """How many of the pass's last columns a decoder edits: one where the prompt ends, all K of a later pass."""
    return 1 if glimpse.past + glimpse.length <= glimpse.end else int(glimpse.logits.shape[1])


def image_rows(glimpse: Glimpse) -> Tensor:
    """Which forward rows have an image, bool (B,); the others are decoded as the base model decodes them."""
    rows = torch.tensor([bool(columns) for columns in glimpse.trail.columns], device=glimpse.logits.device)
    return rows.repeat_interleave(glimpse.repeat)


def put_last(glimpse: Glimpse, edited: Tensor, rows: Tensor | None = None) -> Tensor:
    """The pass's logits with the last columns replaced by ``edited`` (B, n, V), in the given rows only."""
    logits = glimpse.logits.float().clone()
    tail = logits[:, -edited.shape[1] :]
    tail.copy_(edited if rows is None else torch.where(rows[:, None, None], edited, tail))
    return logits
