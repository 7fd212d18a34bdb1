"""ASD, activation steering decoding (Su et al., ACL 2025): contrast of a pass steered towards facts with one steered away.

y = (1 + alpha) a+ - alpha a-, where block l of the two passes sees h + lam v_l and h - lam v_l.

Re-implemented from the paper's description: no official program was found. Both passes are steered in prefill too.
The vectors v_l come from labelled images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.families.identity import identify
from reweigh.rivals.tools.contrast import Contrast
from reweigh.rivals.tools.inputs import forwardable, pixels
from reweigh.rivals.tools.steering import SteeringVectors
from reweigh.rivals.tools.stream import StreamEdit
from reweigh.runtime.decoder import in_range
from reweigh.runtime.forward import Pass

POSITIONS = ("all", "last")


@dataclass(slots=True)
class _Aim:
    """How the passes beside and of one main pass are steered: the sign, and how many of the last columns."""

    sign: float
    columns: int
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
    grid = (("lam", (0.05, 0.1, 0.2)), ("alpha", (0.5, 1.0)))

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
        self.stream = StreamEdit(self)

    def record(self) -> dict[str, Any]:
        """What was open in the authors' text, and which vectors were used."""
        shown = {"lam": self.lam, "alpha": self.alpha, "beta": self.beta, "positions": self.positions}
        shown |= {"layers": list(self.steered), "vectors_sha256": self.vectors.fingerprint}
        return {**super().record(), "options": shown}

    def engage(self, hooks: HookManager) -> Callable[[], None]:
        """Steer the stream after each block."""
        if self.lam == 0:
            return lambda: None
        return self.stream.install(hooks, states=dict.fromkeys(self.steered, self._steer))

    def before(self, forward: Pass) -> None:
        """The main pass is steered towards factual states."""
        forward.scratch = _Aim(1.0, forward.past + forward.length - forward.end + 1)

    def branch_inputs(self, forward: Pass) -> dict[str, Any]:
        """The main prompt, image included."""
        pixels(forward.inputs)
        forward.scratch.prompt = True  # the branch's first pass ends where its prompt does
        return forwardable(self.anatomy, forward.inputs)

    def edit(self, forward: Pass) -> Tensor | None:
        """Contrast the two passes."""
        return None if self.lam == 0 else super().edit(forward)

    def reference(self, forward: Pass) -> Tensor | None:
        """The branch's logits; its passes are steered the other way."""
        forward.scratch = _Aim(-1.0, forward.past + forward.length - forward.end + 1)
        with forward.edited_beside():
            return super().reference(forward)

    def _steer(self, layer: int, states: Tensor, forward: Pass) -> Tensor | None:
        aim: _Aim = forward.scratch
        if not forward.has_image:
            return None
        count = 1 if aim.prompt else aim.columns
        if layer == self.steered[-1]:
            aim.prompt = False
        first = 0 if self.positions == "all" else max(0, states.shape[1] - max(0, count))
        own = forward.sequences(states.shape[0])
        rows = torch.tensor([bool(row.positions) for row in own], device=states.device)
        vector = (aim.sign * self.lam * self._vectors[layer]).to(states.device, states.dtype)
        new = states.clone()
        new[rows, first:] += vector
        return new


def _blocks(anatomy: Anatomy, vectors: SteeringVectors, layers: Sequence[int] | None) -> list[int]:
    """The blocks to steer; the vectors and the model must have all of them."""
    wanted = vectors.layers if layers is None else [anatomy.check_layer(layer) for layer in layers]
    blocks = sorted({anatomy.check_layer(layer) for layer in wanted})
    if missing := sorted(set(blocks) - set(vectors.layers)):
        raise InputError(
            f"there is no steering vector of block {missing[0]}", hint=f"there are {vectors.layers}"
        )
    if not blocks:
        raise InputError("no block is steered", hint="leave layers out for all of them")
    return blocks
