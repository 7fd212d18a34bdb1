"""Evidence gathered as forward passes show visual positions.

Each pass's positions become one segment of the trail, so that evidence follows a cache that is cropped, copied, reordered
or continued with further images. Rows that repeat a prompt (beams) are read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.engines.transformers.trail import Segment, Trail
from reweigh.errors import InputError, MismatchError, UnsupportedError
from reweigh.method.evidence import Evidence, Reading, read_evidence
from reweigh.method.lens import Lens
from reweigh.method.ranks import checked_tokens
from reweigh.method.readouts import DMRR
from reweigh.runtime.decoder import ForwardPass


@dataclass(frozen=True, slots=True)
class Given:
    """A mean that was measured before. Its sum is not known, so nothing can be added to it."""

    mean: Tensor
    dtype: str
    readout: str = DMRR
    located: None = None

    def evidence(self, readout: str) -> Tensor:
        """The mean itself, which must be of the readout that is asked for."""
        if readout != self.readout:
            raise MismatchError(
                f"evidence read as {self.readout} was given, but the table in use is of {readout}",
                hint="give evidence that was measured with the same readout, or let it be measured",
            )
        return self.mean


class Gatherer:
    """Adds up reciprocal ranks over visual positions, pass by pass.

    Args:
        lens: The model's norm and head.
        layers: Blocks to read.
        tokens: Measure these token ids only.
        locate: Token ids whose reciprocal rank is kept for every position.
        kernel: Ranking kernel.
        readouts: What is read; the first is what ``evidence`` gives unless told otherwise.
    """

    def __init__(
        self,
        lens: Lens,
        layers: Iterable[int],
        *,
        tokens: Sequence[int] | None = None,
        locate: Sequence[int] = (),
        kernel: str = "auto",
        readouts: Sequence[str] = (DMRR,),
    ) -> None:
        self.lens = lens
        self.layers = tuple(layers)
        self.tokens = None if tokens is None else checked_tokens(tokens, lens.vocab_size)
        self.locate = checked_tokens(locate, lens.vocab_size)
        self.kernel = kernel
        self.readouts = tuple(readouts)

    def gather(self, forward: ForwardPass, given: Sequence[Evidence | None] | None = None) -> bool:
        """Read the visual positions that are new in this pass; tell whether there were any.

        ``given`` is evidence that was measured before, one for each prompt row; a row of ``None`` is measured.
        """
        new = forward.new_columns()
        if not any(new):
            return False
        if given is not None and len(given) != len(new):
            raise InputError(
                f"evidence of {len(given)} rows was given for a prompt of {len(new)}",
                hint="give one Evidence for each row of the prompt, None for a row that is to be measured",
            )
        found = [columns for columns in new if columns]
        first, last = min(row[0] for row in found), max(row[-1] for row in found)
        value = [
            self._row(forward, row, columns, None if given is None else given[row])
            for row, columns in enumerate(new)
        ]
        forward.trail.segments.append(Segment(forward.past + first, forward.past + last, value))
        return True

    def _row(
        self, forward: ForwardPass, row: int, columns: list[int], given: Evidence | None
    ) -> dict[int, Reading | Given] | None:
        if not columns:
            return None
        if given is not None:
            self._check_width(given)
            return {
                layer: Given(given.of(layer, self.tokens), given.dtype, given.readout)
                for layer in self.layers
            }
        return {
            layer: self._read(forward.states[layer][row * forward.repeat, columns]) for layer in self.layers
        }

    def _check_width(self, given: Evidence) -> None:
        if given.tokens is None and given.values.shape[1] != self.lens.vocab_size:
            raise InputError(
                f"evidence of {given.values.shape[1]} tokens was given, but the head has {self.lens.vocab_size}",
                hint="give evidence that was measured with this model",
            )

    def _read(self, states: Tensor) -> Reading:
        return read_evidence(
            self.lens, states, self.tokens, locate=self.locate, kernel=self.kernel, readouts=self.readouts
        )

    def readings(self, trail: Trail) -> list[dict[int, Reading | Given] | None]:
        """For each prompt row the reading of each layer over all its images; ``None`` for a row without image."""
        rows: list[dict[int, Reading | Given] | None] = []
        for row in range(len(trail.columns)):
            parts = [segment.value[row] for segment in trail.segments if segment.value[row] is not None]
            for part in parts:
                self._check(part)
            merged = {layer: _merged([part[layer] for part in parts]) for layer in self.layers if parts}
            rows.append(merged or None)
        return rows

    def stacked(self, trail: Trail, device: torch.device) -> tuple[list[int], Tensor]:
        """The prompt rows that have evidence, and theirs of the first layer and readout (n, T) on a device."""
        layer, readout = self.layers[0], self.readouts[0]
        found = {row: one[layer] for row, one in enumerate(self.readings(trail)) if one is not None}
        return list(found), torch.stack([one.evidence(readout).to(device) for one in found.values()])

    def _check(self, part: dict[int, Reading | Given]) -> None:
        """Refuse what another request read at other layers or of other tokens: its states are gone."""
        for layer in self.layers:
            if layer not in part:
                raise UnsupportedError(
                    f"the image in the kept cache was read at layer {min(part)}, not at {layer}",
                    hint="start without a cache, or keep to one layer in a conversation",
                )
            reading = part[layer]
            if isinstance(reading, Reading) and not _same_tokens(reading.sums.tokens, self.tokens):
                raise UnsupportedError(
                    "the image in the kept cache was read for another table's tokens",
                    hint="start without a cache, or keep to one table in a conversation",
                )
            if isinstance(reading, Reading) and not set(self.readouts) <= set(reading.sums.names):
                raise UnsupportedError(
                    f"the image in the kept cache was read as {reading.sums.names[0]}, not as {self.readouts[0]}",
                    hint="start without a cache, or keep to one table in a conversation",
                )

    def evidence(self, trail: Trail, readout: str | None = None) -> list[Evidence | None]:
        """The evidence of each prompt row under one of the readouts, the first unless told otherwise."""
        wanted = readout or self.readouts[0]
        return [
            None if found is None else self._evidence(trail, row, found, wanted)
            for row, found in enumerate(self.readings(trail))
        ]

    def _evidence(self, trail: Trail, row: int, found: dict[int, Reading | Given], readout: str) -> Evidence:
        located = [one.located for one in found.values() if one.located is not None]
        return Evidence(
            layers=self.layers,
            values=torch.stack([one.evidence(readout) for one in found.values()]),
            positions=tuple(trail.columns[row]),
            patches=tuple(trail.patches[row]),
            dtype=next(iter(found.values())).dtype,
            tokens=None if self.tokens is None else tuple(self.tokens.tolist()),
            located=torch.stack(located) if located else None,
            readout=readout,
        )


def _same_tokens(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.cpu(), other)


def _merged(parts: list[Reading | Given]) -> Reading | Given:
    if len(parts) == 1:
        return parts[0]
    read = [part for part in parts if isinstance(part, Reading)]
    if len(read) < len(parts):
        raise UnsupportedError(
            "evidence that was given cannot be joined with that of a further image",
            hint="continue such a conversation without given evidence",
        )
    whole = read[0].sums.empty()
    for part in read:
        whole.merge(part.sums)
    located = [part.located for part in read if part.located is not None]
    return Reading(whole, torch.cat(located) if located else None, read[0].dtype)
