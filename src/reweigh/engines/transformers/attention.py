"""Reading and editing attention: one attention function, registered with transformers while a decoder needs it.

A pass that belongs to a run of such a decoder is attended plainly; the decoder may change the scores before the
softmax and look at the weights after it. Any other pass of the same model takes the model's own implementation. Only the
language model uses it; the vision tower keeps its own. Leaving restores everything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from reweigh.engines.base import Decoder, Pass
from reweigh.engines.run import opened
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy

_names = count(1)


class Attention:
    """The attention of one model, through which decoders read and edit it."""

    def __init__(self, anatomy: Anatomy, running: Callable[[], Pass | None]) -> None:
        self.anatomy = anatomy
        self._running = running
        self.name = f"reweigh_{next(_names)}"
        self._own = ""
        self._holds = 0
        self._undo: Callable[[], None] = lambda: None

    def hold(self) -> Callable[[], None]:
        """Make the language model attend through this; return a function that releases it again."""
        if not self._holds:
            self._undo = self._install()
        self._holds += 1

        def release() -> None:
            self._holds -= 1
            if not self._holds:
                self._undo()

        return release

    def _install(self) -> Callable[[], None]:
        model, config = self.anatomy.model, self.anatomy.config
        text = config.get_text_config()
        self._own = text._attn_implementation
        key = next((name for name in config.sub_configs if getattr(config, name, None) is text), None)
        AttentionInterface.register(self.name, self.attend)
        AttentionMaskInterface.register(self.name, self.mask)

        def switch(name: str) -> None:
            model.set_attn_implementation(name if key is None else {key: name})

        def undo() -> None:
            switch(self._own)
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
        """Require that every block took the switch: attention that is never seen would pass unnoticed."""
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

    def _decoder(self) -> Decoder | None:
        """Return the decoder whose run this pass belongs to, if it has to do with attention."""
        run = opened(self.anatomy.model)
        return run.decoder if run is not None and run.decoder.attends else None

    def mask(self, *args: Any, **kwargs: Any) -> Any:
        """Return the attention mask: of plain attention for a decoder that edits it, of the model's own otherwise."""
        name = self._own if self._decoder() is None else "eager"
        return AttentionMaskInterface()[name](*args, **kwargs)

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
    ) -> tuple[Tensor, Tensor | None]:
        """Compute scaled dot-product attention of query (B, H, T, d) over keys and values (B, G, S, d)."""
        decoder = self._decoder()
        if decoder is None:
            if softcap is not None:
                kwargs["softcap"] = softcap
            return self._own_function(module)(  # type: ignore[no-any-return]
                module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
            )
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
        forward = self._running()
        scores = decoder.edit_attention(layer, scores, forward)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        decoder.see_attention(layer, weights, values, forward)
        mixed = nn.functional.dropout(weights, p=dropout, training=module.training) @ values
        return mixed.transpose(1, 2).contiguous(), weights

    def _own_function(self, module: nn.Module) -> Any:
        """Return the implementation the model had; plain attention is a function of the module's own file."""
        if self._own in AttentionInterface():
            return AttentionInterface()[self._own]
        return sys.modules[type(module).__module__].eager_attention_forward
