"""Dense ordinal visual evidence (Eq. dmrr): how strongly an image's positions favor each token.

DMRR_I(v) is the mean over the visual positions j of 1 / rank_j(v), read from the residual states of these positions.
Knows nothing about models, prompts or references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.method.grids import Patch
from reweigh.method.lens import Lens
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.sums import ReadoutSums, reciprocal_ranks


@dataclass(frozen=True, repr=False)
class Evidence:
    """What one row's images support.

    Attributes:
        layers: Blocks that were read, 0-based.
        values: DMRR, or what the readout gives, (L, V) in float32, V being the language backbone's own vocabulary: tokens
            that the vision-language model added have no evidence. (L, R) when only some tokens were measured.
        tokens: Ids of the R tokens, ``None`` when all of the vocabulary was measured.
        positions: The visual positions P in the sequence.
        patches: Where each position lies in its image; ``None`` where the family has no grid.
        located: Reciprocal ranks (L, P, n) of the tokens asked for in ``locate``.
        dtype: Type of the logits that were ranked.
        readout: What the values are; DMRR unless another readout was asked for.

    Examples:
        >>> import reweigh
        >>> values = torch.tensor([[0.5, 0.25, 0.1]])
        >>> found = reweigh.Evidence(layers=(7,), values=values, positions=(0,), patches=(None,), dtype="float32")
        >>> found.at(7)[1].item()
        0.25
    """

    layers: tuple[int, ...]
    values: Tensor
    positions: tuple[int, ...]
    patches: tuple[Patch | None, ...]
    dtype: str
    tokens: tuple[int, ...] | None = None
    located: Tensor | None = None
    readout: str = DMRR

    def __post_init__(self) -> None:
        values: Any = self.values
        if not isinstance(values, Tensor) or values.ndim != 2:
            seen = (
                f"{values.ndim}-dimensional" if isinstance(values, Tensor) else f"a {type(values).__name__}"
            )
            raise InputError(
                f"evidence is {seen}, not a tensor (layers, tokens)",
                hint="pass a row of values for each layer",
            )
        wide = values.shape[-1] if self.tokens is None else len(self.tokens)
        if values.shape != (len(self.layers), wide) or not values.is_floating_point():
            raise InputError(
                f"evidence is {values.dtype} of shape {tuple(values.shape)}; floats ({len(self.layers)}, "
                f"{'vocabulary' if self.tokens is None else wide}) were expected",
                hint="pass a row of values for each layer",
            )

    def __repr__(self) -> str:
        some = "every token" if self.tokens is None else f"{len(self.tokens):,} tokens"
        layers = f"{'layers' if len(self.layers) > 1 else 'layer'} {', '.join(map(str, self.layers))}"
        found = "" if self.located is None else f", {self.located.shape[2]} located"
        return f"<Evidence of {some} at {len(self.positions)} visual positions, {layers}{found} ({self.readout})>"

    def at(self, layer: int) -> Tensor:
        """Return the evidence vector of one layer."""
        if layer not in self.layers:
            raise InputError(
                f"layer {layer} was not measured", hint=f"measured: {', '.join(map(str, self.layers))}"
            )
        return self.values[self.layers.index(layer)]

    def of(self, layer: int, tokens: Tensor | None) -> Tensor:
        """Return the evidence of some tokens at one layer, in their order; ``None`` for the whole vocabulary."""
        values = self.at(layer)
        if self.tokens is None:
            return values if tokens is None else values[tokens.to(values.device)]
        if tokens is not None and tuple(tokens.tolist()) == self.tokens:
            return values
        raise InputError(
            f"this evidence covers {len(self.tokens)} other tokens",
            hint="measure all tokens, or those of the table in its order",
        )

    def grid(self, layer: int, index: int, *, image: int = 0, tile: int = 0) -> Tensor:
        """Return the reciprocal ranks (rows, cols) of the ``index``-th located token over one tile of one image.

        Cells that no position covers are NaN.
        """
        self.at(layer)
        if self.located is None or not 0 <= index < self.located.shape[2]:
            raise InputError("this token was not located", hint="name its id in measure(..., locate=[...])")
        values = self.located[self.layers.index(layer), :, index]
        return over_grid(values, self.patches, image=image, tile=tile)


def is_possible(values: Tensor, readout: str) -> bool:
    """Whether values can be evidence: ranks and probabilities lie in (0, 1], or are 0 in an image-blind arm."""
    if not torch.isfinite(values).all() or readout not in READOUTS:
        return False
    if not READOUTS[readout].is_share or not values.numel():
        return True
    return bool(values.min() >= 0 and values.max() <= 1)


def over_grid(values: Tensor, patches: Sequence[Patch | None], *, image: int = 0, tile: int = 0) -> Tensor:
    """Lay numbers of visual positions (P,) over the grid of one tile; cells that no position covers are NaN."""
    inside = [
        (patch, position)
        for position, patch in enumerate(patches)
        if patch is not None and (patch.image, patch.tile) == (image, tile)
    ]
    if not inside:
        raise InputError(
            f"image {image}, tile {tile} has no grid",
            hint="a Q-Former's queries have no place in the image",
        )
    cells = torch.full((inside[0][0].rows, inside[0][0].cols), float("nan"))
    for patch, position in inside:
        cells[patch.row, patch.col] = values[position]
    return cells


@dataclass(slots=True)
class Reading:
    """The positions of one image, or part of one, read at one layer; parts merge to the reading of the whole.

    Attributes:
        sums: Sums over the positions, of reciprocal ranks or whatever the readouts need.
        located: Reciprocal ranks (P, n) of located tokens.
        dtype: Type of the logits that were ranked.
    """

    sums: ReadoutSums
    located: Tensor | None
    dtype: str


@torch.no_grad()
def read_evidence(lens: Lens, states: Any, sums: ReadoutSums, locate: Tensor | None = None) -> Reading:
    """Rank the vocabulary at each position of ``states`` (P, d) and add up reciprocal ranks.

    Args:
        lens: The model's norm and head.
        states: Residual states before the final norm.
        sums: Sums to add to; they define which readouts of which tokens are read. One read of the states serves all.
        locate: Token ids whose reciprocal rank is kept for every position.
    """
    if not isinstance(states, Tensor):
        raise InputError(
            f"states are a {type(states).__name__}; a tensor (positions, {lens.width}) was expected"
        )
    if states.ndim != 2 or states.shape[1] != lens.width or not states.is_floating_point():
        raise InputError(
            f"states are {states.dtype} of shape {tuple(states.shape)}; floats (positions, {lens.width}) were expected",
            hint="pass the residual stream of one row at its visual positions, before the final norm",
        )
    located, dtype = [], None
    for start in range(0, len(states), lens.chunk):  # P x V never exists
        logits = lens.ranked(states[start : start + lens.chunk])
        dtype = str(logits.dtype).removeprefix("torch.")
        sums.add(logits)
        if locate is not None and len(locate):
            located.append(reciprocal_ranks(logits, locate))
        del logits  # otherwise two chunks would be in memory while the next is computed
    # ask the head for its type only if nothing was read: it may have to run once more to tell
    return Reading(sums, torch.cat(located) if located else None, dtype or lens.dtype)
