"""Dense ordinal visual evidence (Eq. dmrr): how strongly an image's positions favour each token.

DMRR_I(v) is the mean over the visual positions j of 1 / rank_j(v). It depends on the image, the prompt before it and
the layer only, so it is gathered once, in the forward pass that first sees the positions. Knows nothing of references.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.tap import Glimpse, Segment, Tap, Trail
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.positions import Patch
from reweigh.method.measure.lens import CHUNK, Lens
from reweigh.method.measure.ranks import RankSum, reciprocal_ranks


@dataclass(frozen=True)
class Evidence:
    """What one row's images support.

    Attributes:
        layers: Blocks that were read, 0-based.
        values: DMRR (L, V) in float32, or (L, R) when only some tokens were measured.
        tokens: Ids of the R tokens, ``None`` when all of the vocabulary was measured.
        columns: The visual positions P in the sequence.
        patches: Where each position lies in its image; ``None`` where the family has no grid.
        located: Reciprocal ranks (L, P, n) of the tokens asked for in ``locate``.
        dtype: Type of the logits that were ranked.
    """

    layers: tuple[int, ...]
    values: Tensor
    columns: tuple[int, ...]
    patches: tuple[Patch | None, ...]
    dtype: str
    tokens: tuple[int, ...] | None = None
    located: Tensor | None = field(default=None, repr=False)

    def at(self, layer: int) -> Tensor:
        """The evidence vector of one layer."""
        if layer not in self.layers:
            raise InputError(
                f"layer {layer} was not measured", hint=f"measured: {', '.join(map(str, self.layers))}"
            )
        return self.values[self.layers.index(layer)]

    def of(self, layer: int, tokens: Tensor | None) -> Tensor:
        """The evidence of some tokens at one layer, in their order; ``None`` for the whole vocabulary."""
        values = self.at(layer)
        if self.tokens is None:
            return values if tokens is None else values[tokens.to(values.device)]
        if tokens is not None and tuple(tokens.tolist()) == self.tokens:
            return values
        raise InputError(
            f"this evidence is of {len(self.tokens)} other tokens",
            hint="measure all tokens, or those of the table in its order",
        )

    def grid(self, layer: int, place: int, *, image: int = 0, tile: int = 0) -> Tensor:
        """Reciprocal ranks (rows, cols) of the ``place``-th located token over one tile of one image.

        Cells that no position covers are NaN.
        """
        self.at(layer)
        if self.located is None or not 0 <= place < self.located.shape[2]:
            raise InputError("this token was not located", hint="name its id in measure(..., locate=[...])")
        inside = [
            (where, index)
            for index, where in enumerate(self.patches)
            if where is not None and (where.image, where.tile) == (image, tile)
        ]
        if not inside:
            raise InputError(
                f"image {image}, tile {tile} has no grid", hint="a Q-Former's queries have no place"
            )
        cells = torch.full((inside[0][0].rows, inside[0][0].cols), float("nan"))
        for where, index in inside:
            cells[where.row, where.col] = self.located[self.layers.index(layer), index, place]
        return cells


class Here(threading.local):
    """What belongs to the pictures that one thread asks about; other threads ask about others.

    Attributes:
        given: Evidence of the prompt's rows, taken instead of measuring it.
        noted: Where the evidence of the latest prompt's rows is wanted.
    """

    given: Sequence[Evidence | None] | None = None
    noted: list[Evidence | None] | None = None


class Gatherer:
    """Adds up reciprocal ranks over the visual positions as forward passes show them.

    Each pass's positions become one segment of the trail, so that evidence follows a cache that is cropped, copied or
    continued with further images. Rows that repeat a prompt (beams) are read once. Where the evidence of the prompt's
    rows is ``given``, nothing is read.
    """

    def __init__(
        self,
        lens: Lens,
        layers: Iterable[int],
        *,
        tokens: Sequence[int] | None = None,
        locate: Sequence[int] = (),
        kernel: str = "auto",
    ) -> None:
        self.lens = lens
        self.layers = tuple(layers)
        self.tokens = None if tokens is None else torch.as_tensor(tokens, dtype=torch.int64)
        self.locate = torch.as_tensor(list(locate), dtype=torch.int64)
        self.kernel = kernel
        self.here = Here()

    @torch.no_grad()
    def gather(self, glimpse: Glimpse) -> bool:
        """Read the visual positions that are new in this pass; tell whether there were any."""
        fresh = glimpse.fresh()
        if not any(fresh):
            return False
        found = [columns for columns in fresh if columns]
        first, last = min(row[0] for row in found), max(row[-1] for row in found)
        value = [self._row(glimpse, row * glimpse.repeat, columns) for row, columns in enumerate(fresh)]
        glimpse.trail.segments.append(Segment(glimpse.past + first, glimpse.past + last, value))
        if self.here.noted is not None:
            self.here.noted[:] = self.evidence(glimpse.trail)
        return True

    def _row(self, glimpse: Glimpse, row: int, columns: list[int]) -> list[_Read] | None:
        if not columns:
            return None
        if self.here.given is not None:
            return self._recall(self.here.given, row // glimpse.repeat)
        return [self._read(glimpse.states[layer][row, columns]) for layer in self.layers]

    def _recall(self, given: Sequence[Evidence | None], row: int) -> list[_Read]:
        found = given[row] if row < len(given) else None
        if found is None:
            raise InputError(
                f"row {row} holds an image, but the evidence given has none for it",
                hint="give one Evidence for each row of the prompt",
            )
        return [_Read(Known(found.of(layer, self.tokens)), None) for layer in self.layers]

    def _read(self, states: Tensor) -> _Read:
        sums = RankSum(self.lens.anatomy.vocab_size, tokens=self.tokens, kernel=self.kernel)
        located = []
        for logits in self.lens.chunks(states):
            sums.add(logits)
            if len(self.locate):
                located.append(reciprocal_ranks(logits, self.locate.to(logits.device)))
            del logits  # or two chunks would live while the next is computed
        return _Read(sums, torch.cat(located) if located else None)

    def sums(self, trail: Trail) -> list[list[RankSum | Known] | None]:
        """For each prompt row the rank sums of each layer over all its images; ``None`` for a row without image."""
        rows: list[list[RankSum | Known] | None] = []
        for row in range(len(trail.columns)):
            reads = [segment.value[row] for segment in trail.segments if segment.value[row] is not None]
            rows.append(
                [_merged([read[i].sums for read in reads]) for i in range(len(self.layers))]
                if reads
                else None
            )
        return rows

    def evidence(self, trail: Trail) -> list[Evidence | None]:
        """The evidence of each prompt row."""
        rows: list[Evidence | None] = []
        for row, sums in enumerate(self.sums(trail)):
            if sums is None:
                rows.append(None)
                continue
            located = [
                torch.cat([segment.value[row][i].located for segment in trail.segments if segment.value[row]])
                for i in range(len(self.layers))
                if len(self.locate)
            ]
            rows.append(
                Evidence(
                    layers=self.layers,
                    values=torch.stack([layer.dmrr() for layer in sums]),
                    columns=tuple(trail.columns[row]),
                    patches=tuple(trail.patches[row]),
                    dtype=self.lens.dtype,
                    tokens=None if self.tokens is None else tuple(self.tokens.tolist()),
                    located=torch.stack(located) if located else None,
                )
            )
        return rows


@dataclass(frozen=True, slots=True)
class Known:
    """A mean that was measured before. Its sum is not known, so nothing can be added to it."""

    mean: Tensor

    def dmrr(self) -> Tensor:
        """Dense mean reciprocal rank."""
        return self.mean


@dataclass(slots=True)
class _Read:
    """One row, one layer, one pass."""

    sums: RankSum | Known
    located: Tensor | None


def _merged(parts: list[RankSum | Known]) -> RankSum | Known:
    if len(parts) == 1:
        return parts[0]
    sums = [part for part in parts if isinstance(part, RankSum)]
    if len(sums) < len(parts):
        raise UnsupportedError(
            "evidence that was given cannot be joined with that of a further image",
            hint="continue such a conversation without given evidence",
        )
    first = sums[0]
    whole = RankSum(first.vocab_size, tokens=first.tokens, kernel=first.kernel)
    for part in sums:
        whole.merge(part)
    return whole


class _Reader:
    """A listener that only gathers."""

    def __init__(self, gatherer: Gatherer) -> None:
        self.gatherer = gatherer
        self.layers = frozenset(gatherer.layers)
        self.trail: Trail | None = None

    def listen(self, glimpse: Glimpse) -> None:
        self.gatherer.gather(glimpse)
        self.trail = glimpse.trail


def measure(
    model: Any,
    inputs: Mapping[str, Any],
    *,
    layers: Sequence[int] = (-1,),
    tokens: Sequence[int] | None = None,
    locate: Sequence[int] = (),
    dtype: str = "native",
    chunk: int = CHUNK,
    kernel: str = "auto",
) -> list[Evidence | None]:
    """Measure the visual evidence of each row of ``inputs`` at one or several layers, in one forward pass.

    Args:
        model: A transformers vision-language model.
        inputs: What its processor gave, on the model's device.
        layers: 0-based decoder blocks; -1 is the last.
        tokens: Measure these token ids only; ranks still run over the whole vocabulary.
        locate: Token ids whose reciprocal rank is kept for every position, to be drawn on the picture.
        dtype: "native" ranks the head's own logits, "float32" upcasts them first.
        chunk: Positions read at once; bounds the working memory to ``chunk`` x vocabulary.
        kernel: Ranking kernel, "auto" for the best one present.

    Returns:
        One ``Evidence`` per row; ``None`` for a row without image.

    Raises:
        InputError: No row holds an image, or a layer is out of range.
    """
    anatomy = find_anatomy(model)
    blocks = tuple(anatomy.check_layer(layer) for layer in layers)
    reader = _Reader(
        Gatherer(Lens(anatomy, dtype=dtype, chunk=chunk), blocks, tokens=tokens, locate=locate, kernel=kernel)
    )
    with Tap(anatomy, reader), torch.no_grad():
        model(**{**inputs, **_forward_options(anatomy)})
    if reader.trail is None or not any(reader.trail.columns):
        raise InputError(
            "the prompt holds no image, so there is nothing to measure",
            hint=f"the image token is {anatomy.image_tokens}; build inputs with the processor and an image",
        )
    return reader.gatherer.evidence(reader.trail)


def _forward_options(anatomy: Anatomy) -> dict[str, Any]:
    """Keep the pass small: no cache, and logits of one position only where the family can."""
    known = inspect.signature(anatomy.model.forward).parameters
    options = {"use_cache": False, "logits_to_keep": 1}
    return {name: value for name, value in options.items() if name in known or name == "use_cache"}
