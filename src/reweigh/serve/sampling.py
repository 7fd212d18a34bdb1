"""How one row picks its tokens: greedy, or sampled with its own seed, independent of other rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

COLDEST = 1e-5
"""Below this temperature the likeliest token is all that is left, and division would overflow."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 is greedy; ``top_k`` 0 and ``top_p`` 1 keep every token."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0

    @classmethod
    def of(
        cls, settings: Any, method: Mapping[str, Any], *, temperature: float | None, top_p: float | None
    ) -> Sampling:
        """The model's settings, overridden by the decoder's needs, then by the caller."""
        own = {name: getattr(settings, name, None) for name in ("do_sample", "temperature", "top_p", "top_k")}
        found = {**own, **{name: value for name, value in method.items() if name in own}}
        warm = found["temperature"] if found["temperature"] is not None else 1.0
        default = warm if found["do_sample"] else 0.0
        cut = found["top_p"] if found["do_sample"] and found["top_p"] is not None else 1.0
        return cls(
            temperature=default if temperature is None else temperature,
            top_p=cut if top_p is None else top_p,
            top_k=(found["top_k"] or 0) if found["do_sample"] else 0,
        )


class Picker:
    """Picks the tokens of one row as ``generate`` would for this row alone, after ``torch.manual_seed(seed)``."""

    def __init__(self, sampling: Sampling, seed: int | None, device: torch.device) -> None:
        self.greedy = sampling.temperature < COLDEST
        self._warpers: list[Any] = []
        if self.greedy:
            return
        self._random = torch.Generator(device=device)
        if seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(seed)
        if sampling.temperature != 1:
            self._warpers.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k:
            self._warpers.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            self._warpers.append(TopPLogitsWarper(sampling.top_p))

    def pick(self, logits: Tensor) -> int:
        """The next token, of logits (V,)."""
        if self.greedy:
            return int(logits.argmax())
        scores = logits[None]
        for warp in self._warpers:
            scores = warp(None, scores)
        shares = torch.nn.functional.softmax(scores, dim=-1)
        return int(torch.multinomial(shares, 1, generator=self._random))
