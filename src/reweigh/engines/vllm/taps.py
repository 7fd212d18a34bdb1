"""Two ways to the residual stream of chosen blocks inside vLLM; both give the same bits.

``AuxTap`` asks the decoder to hand out states as further outputs of its graph, which is how vLLM feeds its own drafters:
it survives compilation and CUDA graphs. ``HookTap`` copies them from a hook into a buffer, for decoders that cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import UnsupportedError


class AuxTap:
    """Blocks' outputs as auxiliary outputs of the decoder."""

    def __init__(self, runner: Any, decoder: Any, layers: Sequence[int]) -> None:
        if runner.use_aux_hidden_state_outputs:
            raise UnsupportedError(
                "the drafter of this engine already owns the decoder's auxiliary outputs",
                hint="leave speculative decoding out, or use ngram speculation",
            )
        # vLLM counts the embeddings as 0: index l + 1 is the stream after block l.
        decoder._set_aux_hidden_state_layers(tuple(layer + 1 for layer in layers))
        runner.use_aux_hidden_state_outputs = True

    def states(self, execute_state: Any) -> list[Tensor]:
        """The states (T, d) of each layer, rows in the order of the batch."""
        return list(execute_state.aux_hidden_states)


class HookTap:
    """Blocks' outputs copied by forward hooks into buffers that outlive the step."""

    def __init__(self, runner: Any, decoder: Any, layers: Sequence[int]) -> None:
        width = decoder.norm.weight.shape[0]
        self.buffers = [
            torch.zeros(runner.max_num_tokens, width, dtype=runner.dtype, device=runner.device)
            for _ in layers
        ]
        for layer, buffer in zip(layers, self.buffers, strict=True):
            decoder.layers[layer].register_forward_hook(_copy_into(buffer))

    def states(self, execute_state: Any) -> list[Tensor]:
        """The states (T, d) of each layer, rows in the order of the batch."""
        return self.buffers


def _copy_into(buffer: Tensor) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        hidden = output[0] + output[1] if isinstance(output, tuple) else output
        buffer[: hidden.shape[0]].copy_(hidden)

    return hook


def tap_for(runner: Any, decoder: Any, layers: Sequence[int]) -> AuxTap | HookTap:
    """The auxiliary outputs where the decoder has them, hooks elsewhere."""
    tap = AuxTap if hasattr(decoder, "_set_aux_hidden_state_layers") else HookTap
    return tap(runner, decoder, layers)
