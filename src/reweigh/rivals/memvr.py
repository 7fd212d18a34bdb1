"""MemVR, look twice before you answer (Zou et al., ICML 2025): one MLP sees the image again when the model is unsure.

Uncertainty e = -sum t ln t / ln 10 of the ten largest logits, read after middle blocks at the last position. The first
block l with e > gamma has MLP l + 1 mixed: (1 - ratio) MLP(x) + ratio (mean|MLP(x)| / mean|A|) A with A = (x V^T) V,
where V is the projected features of the image. At most once in a forward pass.

The official program adds up the uncertainties of a batch and mixes all rows, padding included; here each row decides
by itself. Like the official program it looks at the last image of several, but never at another sequence's.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.method.lens import Lens
from reweigh.rivals.tools.edits import StreamEditor, mlp_of
from reweigh.rivals.tools.layers import OFFICIAL_DEPTH
from reweigh.runtime.decoder import Pass, in_range

TOP = 10


def uncertainty(logits: Tensor) -> Tensor:
    """Entropy of the softmax over the 10 largest logits (..., V), divided by ln 10."""
    shares = logits.float().topk(TOP, dim=-1).values.softmax(-1)
    entropy: Tensor = -torch.xlogy(shares, shares).sum(dim=-1)
    return entropy / math.log(TOP)


def retraced(visual: Tensor, x: Tensor, first_scale: float | None = None) -> Tensor:
    """The image's features (N, d) seen by MLP inputs (..., d): (x V^T) V, or SiLU(x (s V)^T) V with a scale s."""
    seen = x @ visual.T if first_scale is None else torch.nn.functional.silu(x @ (first_scale * visual).T)
    return seen @ visual


def mixed(out: Tensor, again: Tensor, ratio: float) -> Tensor:
    """(1 - ratio) out + ratio (mean|out| / mean|again|) again, with means over all elements."""
    return (1 - ratio) * out + ratio * (out.abs().mean() / again.abs().mean()) * again


def look_again(out: Tensor, x: Tensor, visual: Tensor, ratio: float, up_scale: float | None = None) -> Tensor:
    """An MLP's output (..., d) for the input x, mixed with the image's features (N, d), in the output's own type.

    ``up_scale`` is mean|W_up| where a SiLU stands between the products: s = mean|W_up| / mean|V|.
    """
    visual = visual.to(x.device)
    scale = None if up_scale is None else up_scale / float(visual.abs().mean())
    return mixed(out.float(), retraced(visual, x.float(), scale), ratio).to(out.dtype)


class Looks:
    """The image features of a running pass, and for rows that were unsure the block that is mixed.

    Features are the first block's input at the columns of a row's last image: the projected features of the vision
    tower, bit for bit. They are kept with the sequence.
    """

    def __init__(self, forward: Pass) -> None:
        self.forward = forward
        self.features: list[Tensor | None] = [row.made for row in forward.rows]
        self.due: dict[int, int] = {}

    def read(self, states: Tensor) -> None:
        """Take the features of new images from the first block's input (B, T, d)."""
        for row, sequence, columns in self.forward.new():
            before = sequence.bounds[-2] if sequence.images > 1 else 0
            found = states[row, columns[-(len(sequence.positions) - before) :]].float()
            for beam, other in enumerate(self.forward.rows):
                if other is sequence:
                    self.features[beam] = found

    def keep(self) -> None:
        """Keep the features of new images with their sequences."""
        for row, sequence, columns in self.forward.new():
            read = bisect_right(sequence.positions, self.forward.past + columns[-1])
            sequence.mark(read, self.features[row])


class MemVR(StreamEditor):
    """An MLP mixed with the image's features where an earlier block is unsure.

    Args:
        ratio: Share of the image in the mixed output; 0 is the base model. The scripts use 0.1 to 0.32.
        gamma: Uncertainty above which the image is looked at again.
        start: Only blocks after this one are read; 5 of 32 (9 with ``silu``), the same share of other depths.
        end: Only blocks before this one are read; 16 of 32, the same share of other depths.
        silu: The form that the official program has for Qwen-VL and GLM-4V: SiLU between the products, uncertainty
            read without the final norm.
    """

    title = "MemVR"
    grid = (("ratio", (0.12, 0.2, 0.32)), ("gamma", (0.5, 0.75)))
    layers = frozenset()

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        ratio: float = 0.12,
        gamma: float = 0.75,
        start: int | None = None,
        end: int | None = None,
        silu: bool = False,
    ) -> None:
        super().__init__(anatomy, processor)
        self.ratio = in_range("ratio", ratio, 0, 1)
        self.gamma = in_range("gamma", gamma, 0)
        count = len(anatomy.blocks)
        self.start = (9 if silu else 5) * count // OFFICIAL_DEPTH if start is None else start
        self.end = max(self.start + 2, 16 * count // OFFICIAL_DEPTH) if end is None else end
        self.read = range(self.start + 1, min(self.end, count - 1))
        if not self.read or self.start < -1:
            raise InputError(
                f"no block between start {self.start} and end {self.end} has another block after it",
                hint=f"there are {count} blocks",
            )
        self.silu = silu
        self.lens = Lens(anatomy.norm, anatomy.head)
        if ratio:
            self.state_layers = (-1, *self.read)
            self.mlp_layers = [layer + 1 for layer in self.read]
        mlps = {layer + 1: mlp_of(anatomy, layer + 1) for layer in self.read}
        self._scales = {layer: _up_scale(mlp) if silu else None for layer, mlp in mlps.items()}

    def before(self, forward: Pass) -> None:
        """Reject a pass for which the method is not defined; note where the image is in any other."""
        if self.ratio == 0 or not forward.has_image:
            return
        if not forward.is_whole():
            raise UnsupportedError(
                f"a pass of {forward.length} columns, {forward.past} of them cached before it: MemVR is defined for a "
                "whole prompt and then one token at a time, with a cache that keeps what it edited",
                hint="keep use_cache=True, without drafts or chunked prefill",
            )
        forward.scratch = Looks(forward)

    def edit(self, forward: Pass) -> None:
        """Keep the features of new images with the sequence."""
        if forward.scratch is not None:
            forward.scratch.keep()

    def edit_state(self, layer: int, states: Tensor, forward: Pass) -> None:
        """Read new images from the embeddings; note the rows that are unsure after a middle block."""
        found: Looks | None = forward.scratch
        if found is None or len(found.due) == len(states):
            return
        if layer == -1:
            found.read(states)
            return
        unsure = uncertainty(self.lens.read(states[:, -1], norm=not self.silu))
        for row in (unsure > self.gamma).nonzero().flatten().tolist():
            if found.features[row] is not None:
                found.due.setdefault(row, layer + 1)

    def edit_mlp(self, layer: int, x: Tensor, out: Tensor, forward: Pass) -> Tensor | None:
        """Mix the image into the rows for which this block is due; padding is left alone."""
        found: Looks | None = forward.scratch
        rows = [] if found is None else [row for row, block in found.due.items() if block == layer]
        if found is None or not rows:
            return None
        new, past, mask = out.clone(), forward.past, forward.mask
        for row in rows:
            real = slice(None) if mask is None else mask[row, past : past + x.shape[1]].bool()
            if (image := found.features[row]) is not None:
                own = out[row, real], x[row, real], image
                new[row, real] = look_again(*own, self.ratio, self._scales[layer])
        return new


def _up_scale(mlp: nn.Module) -> float:
    """mean|W_up| of an MLP; where gate and up are one matrix, of both."""
    for name in ("up_proj", "gate_up_proj"):
        weight = getattr(getattr(mlp, name, None), "weight", None)
        if isinstance(weight, Tensor) and weight.is_floating_point():
            return float(weight.detach().float().abs().mean())
    raise UnsupportedError(
        f"{type(mlp).__name__} has no floating-point up_proj, whose scale silu=True needs",
        hint="load the weights unquantised, or leave silu out",
    )
