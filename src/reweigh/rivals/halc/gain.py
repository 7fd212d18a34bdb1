"""A matcher without another model: how much likelier a picture makes a text than the same prompt without it.

The model that writes the texts judges them, so this is weaker than a matcher of its own; it needs no checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.engines.transformers.arguments import followed_by
from reweigh.families.anatomy import Anatomy
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.rivals.tools.branch import Runner
from reweigh.rivals.tools.confidence import word_tokens
from reweigh.rivals.tools.inputs import without_image

if TYPE_CHECKING:
    from PIL.Image import Image

OWN = "own"
"""The name of this matcher as an option."""


class PictureGain:
    """Scores of texts: the mean over a text's tokens of ln p(token | picture) - ln p(token | no picture)."""

    def __init__(self, anatomy: Anatomy, processor: Any, template: str | None = None) -> None:
        self.anatomy, self.processor, self.template = anatomy, processor, template
        self.runner = Runner(anatomy)

    def __call__(self, picture: Image, texts: Sequence[str]) -> list[float]:
        rows = [word_tokens(self.processor, text) if text else [] for text in texts]
        seen = build_inputs(self.anatomy.model, self.processor, [picture], [DESCRIBE], template=self.template)
        blind = without_image(self.anatomy, self.processor, seen)
        gains = self.likelihoods(seen, rows) - self.likelihoods(blind, rows)
        return [float(gain) for gain in gains]

    @torch.no_grad()
    def likelihoods(self, inputs: Mapping[str, Any], rows: Sequence[Sequence[int]]) -> Tensor:
        """The mean log-probability of each answer's tokens behind one prompt; 0 for an empty one."""
        width, device = max(1, *map(len, rows)), inputs["input_ids"].device
        tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
        said = torch.tensor([[place < len(row) for place in range(width)] for row in rows], device=device)
        prompts = {
            name: torch.cat([value] * len(rows)) if isinstance(value, Tensor) else value
            for name, value in inputs.items()
        }
        longer = followed_by(prompts, tokens)
        if "attention_mask" in longer:
            longer["attention_mask"][:, -width:] *= said
        module = self.anatomy.model if "pixel_values" in longer else self.anatomy.language_model
        with self.runner.suspended():
            logits = module(**longer, use_cache=False).logits[:, -width - 1 : -1].float()
        own: Tensor = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        return (own * said).sum(dim=1) / said.sum(dim=1).clamp_min(1)
