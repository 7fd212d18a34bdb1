"""The plain baselines that an honest comparison needs: greedy, beams, nucleus sampling, and the cut without contrast."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from reweigh.decoders.base import GREEDY, SAMPLING, Decoder, in_range, put_last
from reweigh.decoders.rules import CUT, keep_ratio
from reweigh.engines.transformers.tap import Glimpse
from reweigh.families.anatomy import Anatomy


class Greedy(Decoder):
    """The base model, the likeliest token at each step."""

    needs_image = False
    generation = GREEDY


class Beam(Decoder):
    """Beam search.

    Args:
        num_beams: Beams.
    """

    needs_image = False

    def __init__(self, anatomy: Anatomy, processor: Any = None, *, num_beams: int = 5) -> None:
        super().__init__(anatomy, processor)
        self.generation = self.regime = {
            "do_sample": False,
            "num_beams": int(in_range("num_beams", num_beams, 1)),
        }


class Nucleus(Decoder):
    """Nucleus sampling.

    Args:
        top_p: Mass of the nucleus; 1 is plain sampling.
        temperature: Sampling temperature.
    """

    needs_image = False

    def __init__(
        self, anatomy: Anatomy, processor: Any = None, *, top_p: float = 0.9, temperature: float = 1.0
    ) -> None:
        super().__init__(anatomy, processor)
        in_range("top_p", top_p, 0, 1)
        self.generation = self.regime = {**SAMPLING, "top_p": top_p, "temperature": temperature}


class CutOnly(Decoder):
    """Sampling with the plausibility cut of the contrastive methods and no contrast.

    Args:
        beta: Cut as a share of the largest probability; 0 cuts nothing.
    """

    needs_image = False
    generation = SAMPLING
    regime = SAMPLING

    def __init__(self, anatomy: Anatomy, processor: Any = None, *, beta: float = 0.1) -> None:
        super().__init__(anatomy, processor)
        self.beta = in_range("beta", beta, 0, 1)

    def listen(self, glimpse: Glimpse) -> Tensor | None:
        """Cut the implausible tokens of the pass's columns."""
        if self.beta == 0:
            return None
        logits = glimpse.logits.float()
        return put_last(glimpse, logits.masked_fill(~keep_ratio(logits, self.beta), CUT))
