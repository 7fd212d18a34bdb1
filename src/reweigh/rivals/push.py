"""A control for yes/no questions: where the model hesitates between yes and no, say one of them.

"The Mirage of Performance Gains" (Yin et al., arXiv 2504.10020) argues that a one-way push of the answer gains as much on
POPE as contrastive decoding, without looking at the picture any better. A method that mends answers has to beat it
in both directions. If p(yes) + p(no) > 0.2 and |p(yes) - p(no)| < 0.5, the chosen word is written, otherwise the likeliest
token. The official program reads one id of LLaMA's for each word; here every single token for it counts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.families.processor import tokenizer_of
from reweigh.rivals.tools.rules import CUT
from reweigh.runtime.decoder import GREEDY, Decoder, in_range
from reweigh.runtime.forward import Pass


class Push(Decoder):
    """Yes or no, whichever is chosen, where the model hesitates between them; greedy elsewhere.

    Args:
        answer: The word that is pushed: ``yes`` or ``no``.
        mass: The two must have more than this probability together.
        gap: They must be closer than this; 0 pushes nothing.
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
        if processor is None:
            raise InputError(
                "the push looks up the tokens of yes and no", hint='decoder("push", model, processor)'
            )
        if answer not in ("yes", "no"):
            raise InputError(f"answer is {answer!r}", hint="yes or no")
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
    """Cut all but the likeliest token of the answer where the model hesitates; logits (..., V)."""
    shares = logits.softmax(dim=-1)
    yes, no = (shares[..., tokens[word]].sum(dim=-1) for word in ("yes", "no"))
    hesitates = (yes + no > mass) & ((yes - no).abs() < gap)
    own = torch.tensor(tokens[answer], device=logits.device)
    winner = own[logits[..., own].argmax(dim=-1)].unsqueeze(-1)
    only = torch.full_like(logits, CUT).scatter(-1, winner, logits.gather(-1, winner))
    return torch.where(hesitates.unsqueeze(-1), only, logits)


def answer_tokens(processor: Any, word: str) -> list[int]:
    """The tokens that are a word by themselves, capital or not, after a space or not; else its first token."""
    tokenizer = tokenizer_of(processor)
    forms = [space + form for form in (word.capitalize(), word) for space in ("", " ")]
    ids = [list(tokenizer(form, add_special_tokens=False)["input_ids"]) for form in forms]
    return sorted({one[0] for one in ids if len(one) == 1}) or ids[0][:1]
