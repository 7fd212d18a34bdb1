"""Reading and editing attention: one attention function, registered with transformers while a decoder is attached.

The function computes attention plainly, lets a decoder change the scores before the softmax and look at the weights
after it. Only the language model uses it; the vision tower keeps its own. Leaving restores everything.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy

_names = count(1)

Edit = Callable[[int, Tensor], Tensor]
Look = Callable[[int, Tensor], None]


class AttentionEdit:
    """Plain attention with two openings.

    Args:
        edit: Gets (block, scores (B, H, T, S)) after scaling and masking; returns the scores to use.
        look: Gets (block, weights (B, H, T, S)).
    """

    def __init__(self, anatomy: Anatomy, *, edit: Edit | None = None, look: Look | None = None) -> None:
        self.anatomy = anatomy
        self.name = f"reweigh_{next(_names)}"
        self.edit = edit
        self.look = look

    def install(self) -> Callable[[], None]:
        """Make the language model attend through this; return what puts everything back."""
        model, config = self.anatomy.model, self.anatomy.config
        text = config.get_text_config()
        before = text._attn_implementation
        key = next((name for name in config.sub_configs if getattr(config, name, None) is text), None)
        AttentionInterface.register(self.name, self.attend)
        AttentionMaskInterface.register(self.name, AttentionMaskInterface()["eager"])

        def switch(name: str) -> None:
            model.set_attn_implementation(name if key is None else {key: name})

        def undo() -> None:
            switch(before)
            AttentionInterface._global_mapping.pop(self.name, None)
            AttentionMaskInterface._global_mapping.pop(self.name, None)

        try:
            switch(self.name)
            self._prove()
        except BaseException:
            undo()
            raise
        return undo

    def _prove(self) -> None:
        """Every decoder block must have taken the switch: attention that is never seen would pass unnoticed."""
        for block in self.anatomy.blocks:
            own: list[Any] = [
                part for part in block.modules() if hasattr(part, "layer_idx") and hasattr(part, "config")
            ]
            if not own or any(part.config._attn_implementation != self.name for part in own):
                raise UnsupportedError(
                    f"the attention of {type(self.anatomy.model).__name__} cannot be read or edited: its blocks do not "
                    "choose their attention by name",
                    hint="use a decoder that needs no attention maps",
                )

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        softcap: float | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Scaled dot-product attention of query (B, H, T, d) over keys and values (B, G, S, d)."""
        if kwargs.get("s_aux") is not None:
            raise UnsupportedError("attention with sinks cannot be edited")
        groups = query.shape[1] // key.shape[1]
        keys, values = (part.repeat_interleave(groups, dim=1) for part in (key, value))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        scores = query @ keys.transpose(2, 3) * scale
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        if attention_mask is not None:
            scores = scores + attention_mask[..., : keys.shape[2]]
        layer = int(getattr(module, "layer_idx", -1))
        if self.edit is not None:
            scores = self.edit(layer, scores)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        if self.look is not None:
            self.look(layer, weights)
        mixed = nn.functional.dropout(weights, p=dropout, training=module.training) @ values
        return mixed.transpose(1, 2).contiguous(), weights


def key_mask(columns: list[list[int]], rows: int, total: int, width: int, device: torch.device) -> Tensor:
    """Which of the ``width`` keys are image columns, bool (rows, width).

    Keys are the last ``width`` of ``total`` columns; a longer, pre-allocated cache has empty keys behind them.
    """
    mask = torch.zeros(len(columns), max(total, width), dtype=torch.bool)
    for row, own in enumerate(columns):
        mask[row, [column for column in own if column < total]] = True
    mask = mask[:, total - width : total] if width <= total else mask
    return mask.to(device).repeat_interleave(rows // max(1, len(columns)), dim=0)
