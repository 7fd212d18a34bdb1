"""Read evidence from residual states, image by image, into the rows they belong to.

The states may come from one prefill, in chunks, or over several turns; no position is read twice.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections import abc
from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.engines.base import Pass
from reweigh.engines.rows import Row
from reweigh.errors import InputError, MismatchError, NumericsError, ReweighError, UnsupportedError
from reweigh.method.edit import spread
from reweigh.method.evidence import Evidence, Reading, is_possible, read_evidence
from reweigh.method.lens import Lens
from reweigh.method.readouts import DMRR
from reweigh.method.references import strength
from reweigh.method.sums import ReadoutSums, checked_tokens

Clip = tuple[float | None, float | None]
CLIP: Clip = (0.0, 1.0)
"""Bounds of a strength; an ablation drops one of them."""


@dataclass(frozen=True, eq=False)
class Registered:
    """The numbers of a table: references b(v) of its tokens, and the scale b0.

    Attributes:
        tokens: Registered token ids (R,), ascending.
        references: Their references (R,), float32.
        scale: b0.
        clip: Bounds of a strength.
        dtype: Type of the logits the table was made from; evidence of another is refused. ``None`` accepts any.
    """

    tokens: Tensor
    references: Tensor
    scale: float
    clip: Clip = CLIP
    dtype: str | None = None


class Reader:
    """Reads states into rows, for one table or one measurement.

    Args:
        lens: The model's norm and head.
        layers: Blocks to read.
        tokens: Measure these token ids only.
        locate: Token ids whose reciprocal rank is kept for every position.
        readouts: What is read; the first is what ``evidence`` gives unless told otherwise.
        registered: The table's numbers, where strengths are wanted.

    Attributes:
        empty: Empty sums of what is read, copied for each image.
    """

    def __init__(
        self,
        lens: Lens,
        layers: abc.Iterable[int],
        *,
        tokens: abc.Sequence[int] | Tensor | None = None,
        locate: abc.Sequence[int] = (),
        readouts: abc.Sequence[str] = (DMRR,),
        registered: Registered | None = None,
    ) -> None:
        self.lens = lens
        self.layers = tuple(layers)
        self.empty = ReadoutSums(lens.rows, tokens, readouts=readouts)
        self.tokens = self.empty.tokens
        self.locate = checked_tokens(locate, lens.rows)
        self.readouts = self.empty.readouts
        self.registered = registered

    def feed(self, row: Row, start: int, states: abc.Mapping[int, Tensor]) -> None:
        """Read the states (n, d) of a row's positions from ``start`` on, given by layer.

        Readings of earlier positions are never changed: other rows may share them.
        """
        last = bisect_left(row.positions, start + len(states[self.layers[0]]))
        for bound in row.bounds:
            stop, read, before = min(bound, last), row.read, row.reading
            if stop <= read:
                continue
            if isinstance(before, Evidence):
                raise _not_joined()
            columns = [position - start for position in row.positions[read:stop]]
            new = {}
            for layer in self.layers:
                stream = states[layer]
                new[layer] = self.read(stream[torch.tensor(columns, device=stream.device)])
            if before is None:
                row.reader = self
            else:
                self.check(row)
                new = {layer: _sum(before[layer], part) for layer, part in new.items()}
            row.mark(stop, new)

    def read(self, states: Tensor) -> Reading:
        """Read states (P, d) of visual positions."""
        return read_evidence(self.lens, states, copy.deepcopy(self.empty), self.locate)

    def gather(self, forward: Pass, given: abc.Sequence[Evidence | None] | None = None) -> bool:
        """Read the images that are new in a pass, or take ``given`` evidence; return whether there were any.

        ``given`` has one entry for each row of the prompt; a row of ``None`` is read.
        """
        new = forward.new()
        if new and given is not None and len(given) != len(forward.prompt.rows):
            raise InputError(
                f"evidence of {len(given)} rows was given for a prompt of {len(forward.prompt.rows)}",
                hint="pass one Evidence for each row of the prompt, None for a row to be measured",
            )
        for index, row, columns in new:
            known = None if given is None else given[row.index]
            if known is None:
                self.feed(row, forward.past, {k: forward.states[k][index] for k in self.layers})
            elif row.read <= row.positions.index(forward.past + columns[0]):
                self.give(row, known)
        for _, row, _ in new:
            row.check_read(forward.past + forward.length)
        return bool(new)

    def give(self, row: Row, evidence: Evidence) -> None:
        """Take evidence that was measured before; its sums are unknown, so nothing can be added to it."""
        if row.read:
            raise _not_joined()
        if evidence.tokens is None and evidence.values.shape[1] != self.lens.rows:
            raise InputError(
                f"evidence of {evidence.values.shape[1]} tokens was given, but the model ranks {self.lens.rows}",
                hint="pass evidence that was measured with this model",
            )
        if not torch.isfinite(evidence.values).all():
            raise NumericsError(
                f"the {evidence.readout} that was given is not finite", hint="let it be measured again"
            )
        if not is_possible(evidence.values, evidence.readout):
            raise InputError(
                f"the evidence given cannot be {evidence.readout}: it runs from {float(evidence.values.min()):.4g} to "
                f"{float(evidence.values.max()):.4g}",
                hint="pass evidence that was measured with this model",
            )
        for layer in self.layers:
            evidence.of(layer, self.tokens)  # refuses another layer's and other tokens'
        row.mark(len(row.positions), evidence)
        row.reader = self

    def check(self, row: Row) -> None:
        """Refuse a reading of other layers or tokens by another run: the states are gone."""
        other, reading = row.reader, row.reading
        if other is self or isinstance(reading, Evidence):
            return
        if missing := [layer for layer in self.layers if layer not in reading]:
            raise UnsupportedError(
                f"the image in the kept cache was read at layer {min(reading)}, not at {missing[0]}",
                hint="start without a cache, or keep to one layer in a conversation",
            )
        its, own = other.tokens, self.tokens
        if (its is None) != (own is None) or (own is not None and not torch.equal(its, own)):
            raise UnsupportedError(
                "the image in the kept cache was read for another table's tokens",
                hint="start without a cache, or keep to one table in a conversation",
            )
        names = reading[self.layers[0]].sums.readouts
        if not set(self.readouts) <= set(names):
            raise UnsupportedError(
                f"the image in the kept cache was read as {names[0]}, not as {self.readouts[0]}",
                hint="start without a cache, or keep to one table in a conversation",
            )

    def mean(self, row: Row, layer: int, readout: str | None = None) -> Tensor:
        """Return the evidence of one layer (V,), or (R,) in the order of the tokens."""
        if row.reader is not self:
            self.check(row)
        readout, reading = readout or self.readouts[0], row.reading
        if not isinstance(reading, Evidence):
            return reading[layer].sums.evidence(readout)  # type: ignore[no-any-return]
        if reading.readout != readout:
            raise MismatchError(
                f"evidence read as {reading.readout} was given, but the table in use is of {readout}",
                hint="pass evidence that was measured with the same readout, or let it be measured",
            )
        return reading.of(layer, self.tokens)

    def dtype(self, row: Row) -> str:
        """Return the type of the logits that were ranked."""
        reading = row.reading
        return reading.dtype if isinstance(reading, Evidence) else reading[self.layers[0]].dtype

    def evidence(self, row: Row, readout: str | None = None) -> Evidence | None:
        """Return the evidence of a row's images under one of the readouts; ``None`` without an image."""
        row.check_read()
        if row.reading is None:
            return None
        values = torch.stack([self.mean(row, layer, readout) for layer in self.layers])
        reading = row.reading
        found = [] if isinstance(reading, Evidence) else [reading[layer].located for layer in self.layers]
        return Evidence(
            layers=self.layers,
            values=values,
            positions=tuple(row.positions),
            patches=tuple(row.patches),
            dtype=self.dtype(row),
            tokens=None if self.tokens is None else tuple(self.tokens.tolist()),
            located=torch.stack(found) if len(self.locate) and found else None,
            readout=readout or self.readouts[0],
        )

    def finish(self, row: Row, device: torch.device | str) -> Tensor:
        """Return suppression strengths over the vocabulary (V,); they are laid out once."""
        if row.strengths is None or row.reader is not self:
            table = self.registered
            if table is None:
                raise ReweighError("strengths need a table's references")
            dtype = self.dtype(row)
            if table.dtype not in (None, dtype):
                raise MismatchError(
                    f"this table was made from {table.dtype} logits, but the head gives {dtype} here",
                    hint="leave autocast out, load the model in the table's dtype, or calibrate in the dtype you run",
                )
            low, high = table.clip
            found = self.mean(row, self.layers[0]).to(device)
            values = strength(table.references.to(device), found, table.scale, low=low, high=high)
            row.strengths = spread(values, table.tokens.to(device), self.lens.vocab_size)
            row.reader = self
        return row.strengths


def _sum(before: Reading, part: Reading) -> Reading:
    part.sums.merge(before.sums)
    if before.located is not None and part.located is not None:
        part.located = torch.cat([before.located, part.located])
    return part


def _not_joined() -> UnsupportedError:
    return UnsupportedError(
        "evidence that was given cannot be joined with that of a further image",
        hint="continue such a conversation without given evidence",
    )
