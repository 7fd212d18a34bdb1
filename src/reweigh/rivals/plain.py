"""The plain baselines and controls that an honest comparison needs.

Greedy decoding, beams and sampling; the plausibility cut without any contrast; a push toward yes or no.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    CUT,
    GREEDY,
    SAMPLING,
    Anatomy,
    Decoder,
    InputError,
    Pass,
    in_range,
    keep_ratio,
    require_processor,
    tokenizer_of,
)


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


class Push(Decoder):
    """A control for yes/no questions: where the model hesitates between yes and no, say one of them; greedy elsewhere.

    "The Mirage of Performance Gains" (Yin et al., arXiv 2504.10020) argues that a one-way push of the answer gains as much
    on POPE as contrastive decoding, without looking at the picture any better. A method that improves answers has to beat
    it in both directions. The official program knows one LLaMA token for each word; here every token of the word counts.

    Args:
        answer: The word that is pushed: ``yes`` or ``no``.
        mass: Least probability of both together.
        gap: Largest difference between the two; 0 pushes nothing.
    """

    title = "Yes/no push (control)"
    is_rival = False
    needs_image = False
    generation = GREEDY

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        answer: str = "yes",
        mass: float = 0.2,
        gap: float = 0.5,
    ) -> None:
        super().__init__(anatomy, processor)
        require_processor("push", processor, "the push looks up the tokens of yes and no")
        if answer not in ("yes", "no"):
            raise InputError(f"answer must be yes or no, not {answer!r}")
        self.answer = answer
        self.mass = in_range("mass", mass, 0, 1)
        self.gap = in_range("gap", gap, 0, 1)
        self.tokens = {word: answer_tokens(processor, word) for word in ("yes", "no")}

    def edit(self, forward: Pass) -> Tensor | None:
        """Leave only the pushed word where the model hesitates."""
        if self.gap == 0:
            return None
        logits = forward.logits.float()
        return forward.with_last(push(logits, self.tokens, self.answer, self.mass, self.gap))


def push(logits: Tensor, tokens: dict[str, list[int]], answer: str, mass: float, gap: float) -> Tensor:
    """Cut all but the likeliest token of the answer where p(yes) + p(no) > mass and |p(yes) - p(no)| < gap; (..., V)."""
    shares = logits.softmax(dim=-1)
    yes, no = (shares[..., tokens[word]].sum(dim=-1) for word in ("yes", "no"))
    hesitates = (yes + no > mass) & ((yes - no).abs() < gap)
    own = torch.tensor(tokens[answer], device=logits.device)
    winner = own[logits[..., own].argmax(dim=-1)].unsqueeze(-1)
    only = torch.full_like(logits, CUT).scatter(-1, winner, logits.gather(-1, winner))
    return torch.where(hesitates.unsqueeze(-1), only, logits)


def answer_tokens(processor: Any, word: str) -> list[int]:
    """Return the tokens that spell a word alone, capitalized or not, with or without a space; else its first token."""
    tokenizer = tokenizer_of(processor)
    forms = [space + form for form in (word.capitalize(), word) for space in ("", " ")]
    ids = [list(tokenizer(form, add_special_tokens=False)["input_ids"]) for form in forms]
    return sorted({one[0] for one in ids if len(one) == 1}) or ids[0][:1]
