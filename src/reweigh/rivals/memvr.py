"""MemVR, look twice before you answer (Zou et al., ICML 2025): the image is put into one MLP again when unsure.

Middle blocks are read through the head at the last position; the first that is unsure has the MLP of the block after it
mixed with a product of its input and the image's features. At most once in a forward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from reweigh.engines.transformers.tap import Tap
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.method.lens import Lens
from reweigh.rivals.tools.features import ImageFeatures
from reweigh.rivals.tools.retrace import looked_again, uncertainty
from reweigh.rivals.tools.stream import StreamEdit, mlp_of, up_weight
from reweigh.runtime.decoder import Decoder, ForwardPass, UpcomingPass, in_range

OFFICIAL_DEPTH = 32


@dataclass
class _Pass:
    """A pass under way: its image features, and for rows that were unsure the block that is mixed."""

    features: ImageFeatures
    due: dict[int, int] = field(default_factory=dict)


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
        last_image: Look again at the last image of a row only, as the official program does; at all of them otherwise.
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
        last_image: bool = False,
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
        self.silu, self.last_image, self.whole_batch = silu, last_image, whole_batch
        self.lens = Lens(anatomy.norm, anatomy.head)
        self.stream = StreamEdit(self)
        parts = {layer + 1: mlp_of(anatomy, layer + 1) for layer in self.read}
        scales = {layer: float(up_weight(part).abs().mean()) for layer, part in parts.items() if silu}
        self._scales = dict.fromkeys(parts) | scales
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
        if not upcoming.is_whole():
            raise UnsupportedError(
                f"a pass of {upcoming.length} columns, {upcoming.past} of them cached before it: MemVR is defined for a "
                "whole prompt and then one token at a time, with a cache that keeps what it edited",
                hint="leave use_cache at True, and draft and chunked prefill out",
            )
        self._local.under_way = _Pass(ImageFeatures(upcoming, last_image=self.last_image))

    def edit(self, forward: ForwardPass) -> None:
        """Keep the features of new images with the sequence."""
        found, self._local.under_way = self._local.under_way, None
        if found is not None:
            found.features.keep(forward)

    def _keep(self, layer: int, states: Tensor) -> None:
        if self._local.under_way is not None:
            self._local.under_way.features.read(states)

    def _look(self, layer: int, states: Tensor) -> None:
        found, count = self._local.under_way, states.shape[0]
        if found is None or len(found.due) == count:
            return
        unsure = uncertainty(self.lens.read(states[:, -1], norm=not self.silu))
        unsure = unsure.sum().expand(count) if self.whole_batch else unsure
        for row in (unsure > self.gamma).nonzero().flatten().tolist():
            if self.whole_batch or found.features.of(row, count) is not None:
                found.due.setdefault(row, layer + 1)

    def _mix(self, layer: int, x: Tensor, out: Tensor) -> Tensor | None:
        found = self._local.under_way
        rows = [] if found is None else [row for row, block in found.due.items() if block == layer]
        if found is None or not rows:
            return None
        if self.whole_batch:
            shown = [one for one in found.features.rows if one is not None]
            return looked_again(out, x, shown[-1], self.ratio, self._scales[layer])
        new, past, mask = out.clone(), found.features.upcoming.past, found.features.upcoming.mask
        for row in rows:
            real = slice(None) if mask is None else mask[row, past : past + x.shape[1]].bool()
            if (image := found.features.of(row, x.shape[0])) is not None:
                own = out[row, real], x[row, real], image
                new[row, real] = looked_again(*own, self.ratio, self._scales[layer])
        return new
