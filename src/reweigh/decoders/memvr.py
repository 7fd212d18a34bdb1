"""MemVR, look twice before you answer (Zou et al., ICML 2025): the image is put into one MLP again when unsure.

Middle blocks are read through the head at the last position; the first that is unsure has the MLP of the block after it
mixed with a product of its input and the image's features. At most once in a forward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reweigh.decoders.retrace import mixed, retraced, uncertainty
from reweigh.engines.base import Decoder, ForwardPass, UpcomingPass, in_range
from reweigh.engines.transformers.stream import StreamEdit, mlp_of
from reweigh.engines.transformers.tap import Tap
from reweigh.engines.transformers.trail import Segment, Trail
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.method.measure.lens import Lens

OFFICIAL_DEPTH = 32


@dataclass
class _Pass:
    """A pass under way: its image features by prompt row, and for rows that were unsure the block that is mixed."""

    upcoming: UpcomingPass
    visual: list[Tensor | None]
    due: dict[int, int] = field(default_factory=dict)

    def features(self, row: int, rows: int) -> Tensor | None:
        """Those of a forward row out of ``rows``."""
        return self.visual[row * len(self.visual) // rows]


class _Local(threading.local):
    """The pass that runs in this thread."""

    under_way: _Pass | None = None


class MemVR(Decoder):
    """Mixes one MLP's output with the image's features where the uncertainty of an earlier block is over ``gamma``.

    Args:
        ratio: Share of the image in the mixed output; 0 is the base model. The scripts use 0.1 to 0.32.
        gamma: Uncertainty above which the image is looked at again.
        start: Only blocks after this one are read; 5 of 32 (9 with ``silu``), the same share of other depths.
        end: Only blocks before this one are read; 16 of 32, the same share of other depths.
        silu: The official Qwen-VL and GLM-4V form: SiLU between the products, uncertainty without the final norm.
        whole_batch: Decide and scale for all rows at once, padding included, with the last row's image, as the official
            program would: uncertainties are added up, so that batches fire far more easily.
    """

    title = "MemVR"
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
        whole_batch: bool = False,
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
                f"no block lies between start {self.start} and end {self.end} and has one after it",
                hint=f"there are {count} blocks",
            )
        self.silu, self.whole_batch = silu, whole_batch
        self.lens = Lens(anatomy.norm, anatomy.head)
        self.stream = StreamEdit(self)
        parts = {layer + 1: mlp_of(anatomy, layer + 1) for layer in self.read}
        self._scales = {layer: _up_scale(part) if silu else None for layer, part in parts.items()}
        self._local = _Local()

    def engage(self, tap: Tap) -> Callable[[], None]:
        """Read the embeddings and the middle blocks, edit the MLPs after them."""
        if self.ratio == 0:
            return lambda: None
        return self.stream.install(
            states={-1: self._keep, **dict.fromkeys(self.read, self._look)},
            mlps={layer + 1: self._mix for layer in self.read},
        )

    def before(self, upcoming: UpcomingPass) -> None:
        """Refuse a pass in which the method is not defined; note where the image lies in any other."""
        self._local.under_way = None
        if self.ratio == 0 or not any(upcoming.columns):
            return
        at_once = upcoming.past <= upcoming.start and upcoming.past + upcoming.length == upcoming.end
        if not at_once and upcoming.length != 1:
            raise UnsupportedError(
                f"a pass of {upcoming.length} columns, {upcoming.past} of them cached before it: MemVR is defined for a "
                "whole prompt and then one token at a time, with a cache that keeps what it edited",
                hint="leave use_cache at True, and draft and chunked prefill out",
            )
        self._local.under_way = _Pass(upcoming, _features(upcoming.trail, len(upcoming.columns)))

    def edit(self, forward: ForwardPass) -> None:
        """Keep the features of new images with the sequence."""
        found, self._local.under_way = self._local.under_way, None
        fresh = forward.new_columns()
        if found is None or not any(fresh):
            return
        first = min(row[0] for row in fresh if row)
        last = max(row[-1] for row in fresh if row)
        value = [features if row else None for features, row in zip(found.visual, fresh, strict=True)]
        forward.trail.segments.append(Segment(forward.past + first, forward.past + last, value))

    def _keep(self, layer: int, states: Tensor) -> None:
        """V is the first block's input at the visual columns; earlier images of a row stay in it."""
        found = self._local.under_way
        if found is None:
            return
        repeat = states.shape[0] // len(found.visual)
        for row, columns in enumerate(found.upcoming.new_columns()):
            if columns:
                parts = [found.visual[row], states[row * repeat, columns].float()]
                found.visual[row] = torch.cat([part for part in parts if part is not None])

    def _look(self, layer: int, states: Tensor) -> None:
        found, count = self._local.under_way, states.shape[0]
        if found is None or len(found.due) == count:
            return
        unsure = uncertainty(self.lens.read(states[:, -1], norm=not self.silu))
        unsure = unsure.sum().expand(count) if self.whole_batch else unsure
        for row in (unsure > self.gamma).nonzero().flatten().tolist():
            if self.whole_batch or found.features(row, count) is not None:
                found.due.setdefault(row, layer + 1)

    def _mix(self, layer: int, x: Tensor, out: Tensor) -> Tensor | None:
        found = self._local.under_way
        rows = [] if found is None else [row for row, block in found.due.items() if block == layer]
        if found is None or not rows:
            return None
        if self.whole_batch:
            return self._one(layer, next(one for one in reversed(found.visual) if one is not None), x, out)
        new, past, mask = out.clone(), found.upcoming.past, found.upcoming.mask
        for row in rows:
            real = slice(None) if mask is None else mask[row, past : past + x.shape[1]].bool()
            visual = found.features(row, x.shape[0])
            new[row, real] = self._one(layer, visual, x[row, real], out[row, real])
        return new

    def _one(self, layer: int, visual: Any, x: Tensor, out: Tensor) -> Tensor:
        scale = self._scales[layer]
        scale = None if scale is None else scale / float(visual.abs().mean())
        again = retraced(visual.to(x.device), x.float(), scale)
        return mixed(out.float(), again, self.ratio).to(out.dtype)


def _up_scale(mlp: Any) -> float:
    """mean|W_up| of an MLP; where gate and up are one matrix, of both."""
    for name in ("up_proj", "gate_up_proj"):
        weight = getattr(getattr(mlp, name, None), "weight", None)
        if isinstance(weight, Tensor) and weight.is_floating_point():
            return float(weight.detach().float().abs().mean())
    raise UnsupportedError(f"{type(mlp).__name__} has no floating-point up_proj, whose scale silu=True needs")


def _features(trail: Trail | None, rows: int) -> list[Tensor | None]:
    """The features that earlier passes left, by prompt row: the latest holds those before it."""
    segments = trail.segments if trail is not None else []
    return [
        next((one.value[row] for one in reversed(segments) if one.value[row] is not None), None)
        for row in range(rows)
    ]
