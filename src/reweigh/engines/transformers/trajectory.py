"""Base trajectories: the unmodified model's greedy answers with the candidates of every step, for studies.

The residual states of the visual positions are handed to a function as soon as they are there, so that a study reads
what it wants of them and nothing large is kept. Knows no readout and no table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.engines.transformers.observe import answer_lengths, generate_greedily
from reweigh.engines.transformers.session import end_tokens
from reweigh.errors import InputError, ReweighError
from reweigh.families.anatomy import Anatomy
from reweigh.method.edit import Candidates, candidates
from reweigh.runtime.decoder import Decoder
from reweigh.runtime.forward import Pass

Read = Callable[[int, Tensor], Any]
"""Makes something of a prompt row's visual states (P, d)."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One answer and how it came about; T steps, the one that ended the answer included.

    Attributes:
        tokens: (T,) emitted ids.
        probability: (T,) their probability, the softmax of the raw logits in float64.
        candidates: For each step the candidate ids, best first.
        logits: For each step their raw logits.
        reading: What was made of the visual states.
    """

    tokens: NDArray[np.int64]
    probability: NDArray[np.float64]
    candidates: list[NDArray[np.int64]]
    logits: list[NDArray[np.float32]]
    reading: Any


class _Follower(Decoder):
    """Edits nothing: has visual states read, keeps candidates and the probability of what was emitted."""

    reads_every_step = False
    runs_passes = False

    def __init__(self, anatomy: Anatomy, layer: int, read: Read) -> None:
        super().__init__(anatomy)
        self.layers = frozenset({layer})
        self.layer = layer
        self.read = read
        self.readings: list[Any] = []
        self.steps: list[Candidates] = []
        self.emitted: list[Tensor] = []
        self._before: Tensor | None = None

    def edit(self, forward: Pass) -> None:
        new = forward.new()
        if new:
            if self.readings or len(new) < len(forward.rows):
                raise InputError(
                    "every row needs its image in the first pass",
                    hint="ask about one image for each row, its placeholder in the prompt",
                )
            states = forward.states[self.layer]
            self.readings = [self.read(row, states[row, columns]) for row, _, columns in new]
        if self._before is not None:
            self.note(forward.arguments["input_ids"][:, -1])
        raw = forward.logits[:, -1]
        self.steps.append(candidates(raw))
        self._before = raw

    def note(self, chosen: Tensor) -> None:
        """Keep the probability of what was emitted after the latest pass."""
        if self._before is None:
            raise ReweighError("generate made no forward pass")
        raw = self._before.cpu().double() if self._before.device.type == "mps" else self._before.double()
        probability = torch.softmax(raw, dim=1)
        self.emitted.append(probability.gather(1, chosen.to(probability.device)[:, None])[:, 0])


def follow(
    anatomy: Anatomy, layer: int, inputs: Mapping[str, Any], read: Read, *, max_new_tokens: int
) -> list[Trajectory]:
    """Decode one batch greedily and keep the trajectory of each row."""
    follower = _Follower(anatomy, layer, read)
    sequences = generate_greedily(follower, inputs, max_new_tokens=max_new_tokens)
    if not follower.readings:
        raise InputError("the prompt holds no image", hint="put the image placeholder in the template")
    follower.note(sequences[:, -1])
    generated = sequences[:, -len(follower.steps) :]
    probability = torch.stack(follower.emitted, dim=1).cpu().numpy()
    lengths = answer_lengths(generated, end_tokens(anatomy.language_model))
    return [
        _trajectory(follower.steps, generated[row], probability[row], row, length, follower.readings[row])
        for row, length in enumerate(lengths)
    ]


def _trajectory(
    steps: Sequence[Candidates],
    tokens: Tensor,
    probability: NDArray[np.float64],
    row: int,
    length: int,
    reading: Any,
) -> Trajectory:
    kept = [step.keep[row].cpu().numpy() for step in steps[:length]]
    return Trajectory(
        tokens[:length].cpu().numpy().astype(np.int64),
        probability[:length],
        [step.ids[row].cpu().numpy()[keep] for step, keep in zip(steps, kept, strict=False)],
        [step.logits[row].cpu().numpy()[keep] for step, keep in zip(steps, kept, strict=False)],
        reading,
    )
