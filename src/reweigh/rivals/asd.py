"""ASD, activation steering decoding (Su et al., ACL 2025): contrast of a pass steered towards facts with one steered away.

y = (1 + alpha) a+ - alpha a-, where block l of the two passes sees h + lam v_l and h - lam v_l.

Re-implemented from the paper's description: no official program was found. Both passes are steered in prefill too.
The vectors v_l come from labelled images.
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
from reweigh.families.identity import identify
from reweigh.rivals.tools.contrast import Contrast
from reweigh.rivals.tools.inputs import forwardable, pixels
from reweigh.rivals.tools.steering import SteeringVectors
from reweigh.rivals.tools.stream import StreamEdit
from reweigh.runtime.decoder import ForwardPass, UpcomingPass, in_range

POSITIONS = ("all", "last")


class _Local(threading.local):
    """The pass that runs in this thread: its sign, rows with an image, last columns that are steered."""

    sign: float = 0.0
    rows: Sequence[bool] = ()
    columns: int = 1
    prompt: bool = False


class ASD(Contrast):
    """Contrast of two steered passes.

    What the paper leaves open is an option, recorded with every run; the defaults are ours.

    Args:
        vectors: Steering vectors, or their folder.
        lam: Strength of the steering; 0 is the base model.
        alpha: Weight of the contrast; 0 steers the main pass and needs no branch.
        beta: Plausibility cut.
        layers: Blocks to steer; by default all that the vectors have.
        positions: "all" columns of a pass, or the "last" of the prompt and every one after it.
        force: Use vectors although they seem to belong to another model.
    """

    title = "ASD (re-implemented)"

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        vectors: SteeringVectors | str | Path,
        lam: float = 0.1,
        alpha: float = 1.0,
        beta: float = 0.0,
        layers: Sequence[int] | None = None,
        positions: str = "all",
        force: bool = False,
    ) -> None:
        super().__init__(anatomy, processor, alpha=alpha, beta=beta)
        self.vectors = vectors if isinstance(vectors, SteeringVectors) else SteeringVectors.load(vectors)
        if not force:
            self.vectors.check_pairing(identify(anatomy, processor))
        self.lam = in_range("lam", lam, 0)
        if positions not in POSITIONS:
            raise InputError(f"positions {positions!r} is unknown", hint=f"one of {', '.join(POSITIONS)}")
        self.positions = positions
        self.steered = _blocks(anatomy, self.vectors, layers)
        self._vectors = {
            layer: torch.from_numpy(self.vectors.vectors[self.vectors.layers.index(layer)])
            for layer in self.steered
        }
        self.stream, self._local = StreamEdit(self), _Local()

    def record(self) -> dict[str, Any]:
        """What was open in the authors' text, and which vectors were used."""
        shown = {"lam": self.lam, "alpha": self.alpha, "beta": self.beta, "positions": self.positions}
        shown |= {"layers": list(self.steered), "vectors_sha256": self.vectors.fingerprint}
        return {**super().record(), "options": shown}

    def engage(self, tap: Tap) -> Callable[[], None]:
        """Steer the stream after each block."""
        if self.lam == 0:
            return lambda: None
        return self.stream.install(states=dict.fromkeys(self.steered, self._steer))

    def before(self, upcoming: UpcomingPass) -> None:
        """The main pass is steered towards factual states."""
        after = upcoming.past + upcoming.length - upcoming.end
        self._aim(1.0, upcoming.columns, after + 1)

    def _aim(self, sign: float, columns: Sequence[Sequence[int]], last: int) -> None:
        local = self._local
        local.sign, local.rows, local.columns = sign, [bool(row) for row in columns], last
        local.prompt = False

    def branch_inputs(self, forward: ForwardPass) -> dict[str, Any]:
        """The main prompt, image included."""
        pixels(forward.inputs)
        self._local.prompt = True  # the branch's first pass ends where its prompt does
        return forwardable(self.anatomy, forward.inputs)

    def edit(self, forward: ForwardPass) -> Tensor | None:
        """Contrast the two passes."""
        try:
            return None if self.lam == 0 else super().edit(forward)
        finally:
            self._local.sign = 0.0

    def reference(self, forward: ForwardPass) -> Tensor | None:
        """The branch's logits; its passes are steered the other way."""
        last = forward.past + forward.length - forward.end + 1
        self._aim(-1.0, forward.trail.columns, last)
        with self.stream.while_paused():
            return super().reference(forward)

    def _steer(self, layer: int, states: Tensor) -> Tensor | None:
        local = self._local
        if not local.sign or not any(local.rows):
            return None
        count = 1 if local.prompt else local.columns
        if layer == self.steered[-1]:
            local.prompt = False
        first = 0 if self.positions == "all" else max(0, states.shape[1] - max(0, count))
        rows = torch.tensor(local.rows, device=states.device)
        rows = rows.repeat_interleave(states.shape[0] // len(local.rows))
        vector = (local.sign * self.lam * self._vectors[layer]).to(states.device, states.dtype)
        new = states.clone()
        new[rows, first:] += vector
        return new


def _blocks(anatomy: Anatomy, vectors: SteeringVectors, layers: Sequence[int] | None) -> list[int]:
    """The blocks to steer, all of which the vectors and the model must have."""
    wanted = vectors.layers if layers is None else [anatomy.check_layer(layer) for layer in layers]
    blocks = sorted({anatomy.check_layer(layer) for layer in wanted})
    if missing := sorted(set(blocks) - set(vectors.layers)):
        raise InputError(
            f"there is no steering vector of block {missing[0]}", hint=f"there are {vectors.layers}"
        )
    if not blocks:
        raise InputError("no block is steered", hint="leave layers out for all of them")
    return blocks
