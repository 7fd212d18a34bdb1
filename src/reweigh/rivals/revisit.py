"""ReVisiT (Cho and Kim, ACL 2026): each step borrows the visual position whose readout is nearest to the model's own.

y = log P + log Q_i on the tokens K with p >= relative_top * max p; P and Q_i are renormalized on K.

The states of the visual positions are kept from the prompt's pass. A step multiplies only the head rows of plausible tokens,
so a positions-by-vocabulary matrix never exists. The official program refines only the first row of a batch; here every
row with an image is refined. It also drops the last layer from a list of indices, though not from "all"; here a list is
read unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    CUT,
    Anatomy,
    Decoder,
    Pass,
    UnsupportedError,
    bucket,
    first_index,
    in_range,
    is_tied,
    keep_ratio,
    reversed_js,
)

CHUNK = 2**24
"""Most numbers of a readout in memory at once."""

ALL_LAYERS = frozenset({"qwen2_5_vl"})
"""Families for which the authors read all layers; the last one elsewhere."""


class ReVisiT(Decoder):
    """Help from one visual position.

    Args:
        layers: "last", "all", "low", "high" (the last three include the last layer) or a list of indices of
            ``hidden_states``; by default all for Qwen2.5-VL and the last elsewhere, as the authors chose.
        relative_top: Cut as a share of the largest probability.
    """

    title = "ReVisiT"
    grid = (("relative_top", (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)),)
    reads_every_step = False
    runs_passes = False

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        layers: str | Sequence[int] | None = None,
        relative_top: float = 1e-5,
    ) -> None:
        super().__init__(anatomy, processor)
        self.relative_top = in_range("relative_top", relative_top, 0, 1)
        if layers is None:
            layers = "all" if anatomy.family.name in ALL_LAYERS else "last"
        self.indices = _indices(layers, len(anatomy.blocks), is_tied(anatomy))
        self.layers = frozenset(index - 1 for index in self.indices)
        self._weight, self._bias = _head(anatomy)

    def edit(self, forward: Pass) -> Tensor | None:
        """Keep the states of new visual positions; refine the logits of rows that have an image."""
        self._gather(forward)
        if forward.past + forward.length < forward.prompt.end or not forward.has_image:
            return None
        count = forward.edited_columns()
        main = forward.logits[:, -count:].float()
        edited = main.clone()
        for index, row in enumerate(forward.rows):
            if row.reading is not None:
                states = torch.cat(row.reading)
                for column in range(count):
                    edited[index, column] = self.refine(main[index, column], states)
        return forward.with_last(edited, forward.image_rows())

    def refine(self, logits: Tensor, states: Tensor) -> Tensor:
        """Refine one row's logits (V,) by the candidates' states (N, d)."""
        plausible = keep_ratio(logits.log_softmax(-1), self.relative_top)
        tokens = plausible.nonzero().flatten()
        own = logits[tokens].log_softmax(-1)
        weight = self._weight[tokens.to(self._weight.device)]
        bias = None if self._bias is None else self._bias[tokens.to(self._bias.device)]

        def read(some: Tensor) -> Tensor:
            logits = torch.nn.functional.linear(some.to(weight.dtype), weight, bias)
            return logits.float().to(own.device).log_softmax(-1)

        chunk = max(1, CHUNK // len(tokens))
        starts = range(0, len(states), chunk)
        apart = torch.cat([reversed_js(own, read(states[start : start + chunk])) for start in starts])
        chosen = read(states[apart.argmin()][None])[0]
        return torch.full_like(logits, CUT).index_copy(0, tokens, own + chosen)

    def _gather(self, forward: Pass) -> None:
        """Keep the candidates' states of each row, a tensor (N, d) for each layer."""
        for index, row, columns in forward.new():
            new = [self._state(forward, layer, index, columns) for layer in self.indices]
            before = row.reading or [state[:0] for state in new]
            forward.keep(row, columns, [torch.cat(pair) for pair in zip(before, new, strict=True)])

    def _state(self, forward: Pass, layer: int, index: int, columns: list[int]) -> Tensor:
        states = forward.states[layer - 1][index, columns]
        return self.anatomy.norm(states) if layer == len(self.anatomy.blocks) else states


def _indices(layers: str | Sequence[int], count: int, tied: bool) -> list[int]:
    if layers == "last":
        return [count]
    if layers == "all":
        return [*range(first_index(count, tied), count, 2), count]
    found = bucket(layers, count, tied)
    return [*found, count] if isinstance(layers, str) else found


def _head(anatomy: Anatomy) -> tuple[Tensor, Tensor | None]:
    weight = getattr(anatomy.head, "weight", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise UnsupportedError(
            f"{type(anatomy.head).__name__} has no floating-point weight, but single rows of it are needed",
            hint="load the model without quantizing its head",
        )
    return weight.detach(), None if anatomy.head.bias is None else anatomy.head.bias.detach()
