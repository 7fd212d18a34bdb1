"""ProjectAway (Jiang et al., ICLR 2025): words are taken out of the image's states before an answer is written.

At image positions after one block the part that points along a word's own text state is subtracted. Which words to take
out must be known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.tap import Tap
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.entities import word_list
from reweigh.rivals.tools.stream import StreamEdit
from reweigh.rivals.tools.word_state import WordState
from reweigh.runtime.context import opened_on
from reweigh.runtime.decoder import Decoder, ForwardPass, Request, UpcomingPass, in_range


def project_away(
    states: Tensor, targets: Sequence[Tensor], weight: float, *, first_row: bool = False
) -> Tensor:
    """h <- h - weight * max(h.t / t.t, 0) t for each target (d,) in turn, on states (B, P, d).

    ``first_row`` takes the coefficients of row 0 for every row, as the official program does.
    """
    for target in targets:
        share = (states @ target) / (target @ target)
        share = share[:1].expand_as(share) if first_row else share
        # not clamp_min: a target of zeros, whose share is no number, takes nothing out
        states = states - weight * torch.where(share > 0, share, 0)[..., None] * target
    return states


class _Local(threading.local):
    """The pass that runs in this thread, and what is taken out of each prompt row's image."""

    upcoming: UpcomingPass | None = None
    targets: Sequence[Sequence[Tensor]] = ()


class EraseRequest(Request):
    """A request with words of its own."""

    def __init__(self, decoder: Decoder, erase: tuple[str, ...]) -> None:
        super().__init__(decoder)
        self.erase = erase


class ProjectAway(Decoder):
    """Subtracts the positive part along each word's text state from the image's states, when an image is read.

    Args:
        erase: The words, or a file with one to a line; none is the base model. ``request(erase=[...])`` gives a caller
            words of its own.
        weight: How much of the part is subtracted; 1 removes it exactly, more overshoots.
        image_layer: Block after which the image's states are changed, 0-based.
        text_layer: Index of ``hidden_states`` at which a word's state is read, at its last token; 0 is the embeddings.
        embeddings: Take the mean of the word's input embeddings instead of its state.
        first_row: Use the first row's coefficients for a whole batch, as the official program does.
    """

    title = "ProjectAway"

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        erase: Sequence[str] | str | Path,
        weight: float = 1.5,
        image_layer: int = 2,
        text_layer: int = 1,
        embeddings: bool = False,
        first_row: bool = False,
    ) -> None:
        super().__init__(anatomy, processor)
        if processor is None:
            raise InputError(
                "ProjectAway tokenises words", hint='decoder("projectaway", model, processor, ...)'
            )
        self.erase = word_list("erase", erase)
        self.weight = in_range("weight", weight, 0)
        self.image_layer = anatomy.check_layer(image_layer)
        text_layer = int(in_range("text_layer", text_layer, 0, len(anatomy.blocks)))
        self.word_state = WordState(anatomy, processor, text_layer, embeddings=embeddings)
        self.first_row = first_row
        self.stream, self._local = StreamEdit(self), _Local()

    def request(self, outer: Request | None = None, **options: Any) -> Request:
        """A request; ``erase`` replaces the decoder's own words."""
        erase = options.pop("erase", None)
        super().request(outer, **options)
        kept = outer.erase if isinstance(outer, EraseRequest) else self.erase
        return EraseRequest(self, kept if erase is None else word_list("erase", erase))

    def engage(self, tap: Tap) -> Callable[[], None]:
        """Edit the stream after one block."""
        return self.stream.install(states={self.image_layer: self._take_out})

    def before(self, upcoming: UpcomingPass) -> None:
        """Find what is to be taken out of the image in the pass that is about to run."""
        self._local.upcoming = None
        if any(upcoming.new_columns()):
            self._local.targets = self.targets(upcoming)
            self._local.upcoming = upcoming

    def targets(self, upcoming: UpcomingPass) -> list[list[Tensor]]:
        """For each prompt row the states of the words to take out."""
        opened = opened_on(self.anatomy.model)
        erase = opened.request.erase if opened and isinstance(opened.request, EraseRequest) else self.erase
        return [[self.word_state(word) for word in erase]] * len(upcoming.columns)

    def edit(self, forward: ForwardPass) -> None:
        """Forget the pass; its logits are left alone."""
        self._local.upcoming, self._local.targets = None, ()

    def _take_out(self, layer: int, states: Tensor) -> Tensor | None:
        upcoming, targets = self._local.upcoming, self._local.targets
        if upcoming is None or not any(targets):
            return None
        new, repeat = states.clone(), states.shape[0] // len(targets)
        columns = upcoming.new_columns()
        if self.first_row:
            if len({len(row) for row in columns}) > 1:
                raise InputError("first_row needs images of one size in a batch", hint="leave first_row out")
            places = torch.tensor(columns, device=states.device).repeat_interleave(repeat, dim=0)[..., None]
            own = [target.to(states.device) for target in targets[0]]
            image = states.float().take_along_dim(places, dim=1)
            edited = project_away(image, own, self.weight, first_row=True).to(states.dtype)
            return new.scatter(1, places.expand_as(edited), edited)
        for row, (own_columns, words) in enumerate(zip(columns, targets, strict=True)):
            for beam in range(row * repeat, (row + 1) * repeat) if own_columns and words else ():
                own = [target.to(states.device) for target in words]
                image = states[beam : beam + 1, own_columns].float()
                new[beam, own_columns] = project_away(image, own, self.weight)[0].to(states.dtype)
        return new
