"""The plain baselines that an honest comparison needs: greedy, beams, nucleus sampling, and the cut without contrast."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.rules import CUT, keep_ratio
from reweigh.runtime.decoder import GREEDY, SAMPLING, Decoder, in_range
from reweigh.runtime.forward import Pass


class Greedy(Decoder):
    """The base model, the likeliest token at each step."""

    title = "Base (greedy)"
    is_rival = False
    needs_image = False
    generation = GREEDY


class Beam(Decoder):
    """Beam search.

    Args:
        num_beams: Beams.
    """

    title = "Beam search"
    grid = (("num_beams", (2, 3, 4, 5, 8, 10)),)
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

    title = "Nucleus sampling"
    grid = (("top_p", (0.5, 0.7, 0.9)), ("temperature", (0.5, 1.0)))
    is_rival = False
    needs_image = False

    def __init__(
        self, anatomy: Anatomy, processor: Any = None, *, top_p: float = 0.9, temperature: float = 1.0
    ) -> None:
        super().__init__(anatomy, processor)
        in_range("top_p", top_p, 0, 1)
        in_range("temperature", temperature, 1e-3)
        self.generation = self.regime = {**SAMPLING, "top_p": top_p, "temperature": temperature}


class Sampling(Decoder):
    """Plain sampling, the regime in which the contrastive methods decode."""

    title = "Sampling"
    is_rival = False
    needs_image = False
    generation = SAMPLING
    regime = SAMPLING


class CutOnly(Decoder):
    """Sampling with the plausibility cut of the contrastive methods and no contrast.

    Args:
        beta: Cut as a share of the largest probability; 0 cuts nothing.
    """

    title = "Cut only (control)"
    grid = (("beta", (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)),)
    is_rival = False
    needs_image = False
    generation = SAMPLING
    regime = SAMPLING

    def __init__(self, anatomy: Anatomy, processor: Any = None, *, beta: float = 0.1) -> None:
        super().__init__(anatomy, processor)
        self.beta = in_range("beta", beta, 0, 1)

    def edit(self, forward: Pass) -> Tensor | None:
        """Cut the implausible tokens of the pass's columns."""
        if self.beta == 0:
            return None
        logits = forward.logits.float()
        return forward.with_last(logits.masked_fill(~keep_ratio(logits, self.beta), CUT))
