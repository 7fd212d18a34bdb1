"""ProjectAway (Jiang et al., ICLR 2025): words are removed from the image's states before an answer is written.

h <- h - weight * max(h.t / t.t, 0) t at image positions after one block, for the text state t of each word in turn.

The official program takes the words from CHAIR's ground truth; here the caller gives them. It uses the first row's
coefficients for a whole batch and a fixed image span; here each row has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    Anatomy,
    InputError,
    Pass,
    Run,
    StreamEditor,
    beside,
    in_range,
    require_processor,
    tokenizer_of,
    word_list,
    word_tokens,
)


def project_away(states: Tensor, targets: Sequence[Tensor], weight: float) -> Tensor:
    """Subtract weight * max(h.t / t.t, 0) t from states h (..., d), for each target t (d,) in turn."""
    for target in targets:
        share = (states @ target) / (target @ target)
        # not clamp_min: with a target of zeros the share is NaN, and nothing is removed
        states = states - weight * torch.where(share > 0, share, 0)[..., None] * target
    return states


class ProjectAway(StreamEditor):
    """Remove words from the image's states when an image is read.

    Args:
        erase: The words, or a file with one word per line; with none it is the base model. ``using(erase=[...])``
            gives a caller its own words.
        weight: How much of the part is subtracted; 1 removes it exactly, more overshoots.
        image_layer: Block after which the image's states are changed, 0-based.
        text_layer: Index of ``hidden_states`` at which a word's state is read, at its last token; 0 is the embeddings.
    """

    title = "ProjectAway"
    call_options = ("erase",)
    grid = (("weight", (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)),)

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        erase: Sequence[str] | str | Path,
        weight: float = 1.5,
        image_layer: int = 2,
        text_layer: int = 1,
    ) -> None:
        super().__init__(anatomy, processor)
        require_processor("projectaway", processor, "ProjectAway tokenizes words")
        self.erase = word_list("erase", erase)
        self.weight = in_range("weight", weight, 0)
        self.image_layer = anatomy.check_layer(image_layer)
        self.text_layer = int(in_range("text_layer", text_layer, 0, len(anatomy.blocks)))
        self.state_layers = (self.image_layer,)

    def run(self, **options: Any) -> Run:
        """Return the settings of one call; its ``erase`` replaces the decoder's words."""
        if options.get("erase") is not None:
            options["erase"] = word_list("erase", options["erase"])
        return super().run(**options)

    def before(self, forward: Pass) -> None:
        """Read the states of the words to remove, if the next pass shows an image."""
        if any(map(forward.shown, range(len(forward.rows)))):
            erase = forward.prompt.run.options.get("erase", self.erase)
            forward.prompt.scratch = [self.word_state(word) for word in erase]

    @torch.no_grad()
    def word_state(self, word: str) -> Tensor:
        """Return the state (d,) of a word's last token, in a text-only pass of BOS and word."""
        tokenizer = tokenizer_of(self.processor)
        ids = word_tokens(tokenizer, word)
        if not ids:
            raise InputError(f"the word {word!r} has no token")
        start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        given = torch.tensor([start + ids], device=self.anatomy.model.device)
        with beside(self.anatomy):
            output = self.anatomy.language_model(input_ids=given, use_cache=False, output_hidden_states=True)
        state: Tensor = output.hidden_states[self.text_layer][0, -1]
        return state.float()

    def edit_state(self, layer: int, states: Tensor, forward: Pass) -> Tensor | None:
        """Remove the words from the image's states."""
        if not forward.prompt.scratch:
            return None
        targets, new = [target.to(states.device) for target in forward.prompt.scratch], states.clone()
        for row in range(len(states)):
            columns = forward.shown(row)
            if columns:
                new[row, columns] = project_away(states[row, columns].float(), targets, self.weight).to(
                    states.dtype
                )
        return new
