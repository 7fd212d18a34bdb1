"""A word as the language model holds it by itself: its state after some block, or its embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.families.processor_parts import tokenizer_of
from reweigh.rivals.tools.branch import Runner
from reweigh.rivals.tools.confidence import word_tokens


class WordState:
    """A word's own state (d,), read in a text-only pass.

    Args:
        layer: Index of ``hidden_states`` at which it is read, at the word's last token behind the start token.
        embeddings: Take the mean of its input embeddings instead.
    """

    def __init__(self, anatomy: Anatomy, processor: Any, layer: int, *, embeddings: bool = False) -> None:
        self.anatomy = anatomy
        self.tokenizer = tokenizer_of(processor)
        self.layer, self.embeddings = layer, embeddings
        self.runner = Runner(anatomy)

    @torch.no_grad()
    def __call__(self, word: str) -> Tensor:
        ids = word_tokens(self.tokenizer, word)
        if not ids:
            raise InputError(f"the word {word!r} has no token")
        if self.embeddings:
            table = self.anatomy.speaker.get_input_embeddings()
            return table(torch.tensor(ids, device=table.weight.device)).float().mean(dim=0)  # type: ignore[no-any-return]
        start = [] if self.tokenizer.bos_token_id is None else [self.tokenizer.bos_token_id]
        given = torch.tensor([start + ids], device=self.anatomy.model.device)
        return self.runner.hidden(given, self.layer)[0, -1].float()
