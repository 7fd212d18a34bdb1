"""MemVR, look twice before you answer (Zou et al., ICML 2025): one MLP sees the image again when the model is unsure.

Uncertainty e = -sum t ln t / ln 10 of the ten largest logits, read after middle blocks at the last position. The first
block l with e > gamma has MLP l + 1 mixed: (1 - ratio) MLP(x) + ratio (mean|MLP(x)| / mean|A|) A with A = (x V^T) V,
where V is the projected features of the image. At most once in a forward pass.

The official program adds up the uncertainties of a batch and mixes all rows, padding included; here each row decides by
itself. It looks at the last of several images, as the official program does, but never at another row's. All families
get the form of the LLaVA program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    OFFICIAL_DEPTH,
    Anatomy,
    InputError,
    Lens,
    Pass,
    StreamEditor,
    UnsupportedError,
    in_range,
    mlp_of,
    unpadded,
)

TOP = 10


def uncertainty(logits: Tensor) -> Tensor:
    """Entropy of the softmax over the 10 largest logits (..., V), divided by ln 10."""
    shares = logits.float().topk(TOP, dim=-1).values.softmax(-1)
    entropy: Tensor = -torch.xlogy(shares, shares).sum(dim=-1)
    return entropy / math.log(TOP)


def look_again(out: Tensor, x: Tensor, visual: Tensor, ratio: float) -> Tensor:
    """Mix an MLP's output (T, d) for the input x with A = (x V^T) V of the image's features V (N, d).

    (1 - ratio) out + ratio (mean|out| / mean|A|) A, with means over all elements, in single precision at least.
    """
    wide = torch.promote_types(out.dtype, torch.float32)
    own, visual = out.to(wide), visual.to(x.device, wide)
    again = (x.to(wide) @ visual.T) @ visual
    return ((1 - ratio) * own + ratio * (own.abs().mean() / again.abs().mean()) * again).to(out.dtype)


@dataclass
class Looks:
    """The image features (N, d) of a running pass by row, and for rows that were unsure the block that is mixed."""

    features: list[Tensor | None]
    due: dict[int, int] = field(default_factory=dict)


class MemVR(StreamEditor):
    """An MLP mixed with the image's features where an earlier block is unsure.

    Features are the first block's input at the columns of a row's last image: the projected features of the vision
    tower, bit for bit. They are kept with the row.

    Args:
        ratio: Share of the image in the mixed output; 0 is the base model. The scripts use 0.1 to 0.32.
        gamma: Uncertainty above which the image is looked at again.
        start: Only blocks after this one are read; 5 of 32, the same share of other depths.
        end: Only blocks before this one are read; 16 of 32, the same share of other depths.
    """

    title = "MemVR"
    grid = (("ratio", (0.12, 0.2, 0.32)), ("gamma", (0.5, 0.75)))

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        ratio: float = 0.12,
        gamma: float = 0.75,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        super().__init__(anatomy, processor)
        self.ratio = in_range("ratio", ratio, 0, 1)
        self.gamma = in_range("gamma", gamma, 0)
        count = len(anatomy.blocks)
        start = 5 * count // OFFICIAL_DEPTH if start is None else start
        end = max(start + 2, 16 * count // OFFICIAL_DEPTH) if end is None else end
        self.read = range(start + 1, min(end, count - 1))
        if not self.read or start < -1:
            raise InputError(
                f"no block between start {start} and end {end} has another block after it",
                hint=f"there are {count} blocks",
            )
        self.lens = Lens(anatomy.norm, anatomy.head)
        mixed = [layer + 1 for layer in self.read]
        for layer in mixed:
            mlp_of(anatomy, layer)  # reject a mixture of experts at once
        if ratio:
            self.state_layers, self.mlp_layers = (-1, *self.read), mixed

    def before(self, forward: Pass) -> None:
        """Reject a pass for which the method is not defined."""
        if self.ratio == 0 or not forward.has_image:
            return
        if not forward.is_whole():
            raise UnsupportedError(
                f"a pass has {forward.length} columns after {forward.past} cached ones, but MemVR is defined for a whole "
                "prompt and then one token at a time, with a cache that keeps what it edited",
                hint="keep use_cache=True, without drafts or chunked prefill",
            )
        forward.prompt.scratch = Looks([row.reading for row in forward.rows])

    def edit_state(self, layer: int, states: Tensor, forward: Pass) -> None:
        """Take the features of new images from the embeddings; note the rows that are unsure after a middle block."""
        found: Looks | None = forward.prompt.scratch
        if found is None or len(found.due) == len(states):
            return
        if layer == -1:
            self._read_images(states, forward)
            return
        unsure = uncertainty(self.lens.read(states[:, -1]))
        for row in (unsure > self.gamma).nonzero().flatten().tolist():
            if found.features[row] is not None:
                found.due.setdefault(row, layer + 1)

    def _read_images(self, states: Tensor, forward: Pass) -> None:
        for index, row, columns in forward.new():
            before = row.bounds[-2] if row.images > 1 else 0
            visual = states[index, columns[before - len(row.positions) :]].float()
            for beam, other in enumerate(forward.rows):
                if other is row:
                    forward.prompt.scratch.features[beam] = visual

    def edit_mlp(self, layer: int, x: Tensor, out: Tensor, forward: Pass) -> Tensor | None:
        """Mix the image into the rows for which this block is due; padding is left alone."""
        found: Looks | None = forward.prompt.scratch
        rows = [] if found is None else [row for row, block in found.due.items() if block == layer]
        if found is None or not rows:
            return None
        new, columns = out.clone(), unpadded(forward)[:, forward.past :].to(out.device)
        for row in rows:
            real, image = columns[row], found.features[row]
            if image is not None:
                new[row, real] = look_again(out[row, real], x[row, real], image, self.ratio)
        return new

    def edit(self, forward: Pass) -> None:
        """Keep the features of new images with their rows."""
        if forward.prompt.scratch is None:
            return
        for index, row, columns in forward.new():
            forward.keep(row, columns, forward.prompt.scratch.features[index])
