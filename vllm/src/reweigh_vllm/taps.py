"""A model inside vLLM: two ways to the residual stream of chosen blocks, which give the same bits, and the lens.

``AuxTap`` asks the decoder to hand out states as further outputs of its graph, which is how vLLM feeds its own drafters:
it survives compilation and CUDA graphs. ``HookTap`` copies them from a hook into a buffer, for decoders that cannot.
The lens is the final norm and ``compute_logits``, which gathers the vocabulary over tensor-parallel ranks, drops padded
rows and runs a quantized head; scale and soft cap inside it are monotone and change no rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from reweigh_vllm.core import CHUNK, Lens, MismatchError, UnsupportedError

PROBE = 16
"""Positions on which a compiled decoder is checked."""


class AuxTap:
    """Blocks' outputs as auxiliary outputs of the decoder."""

    def __init__(self, runner: Any, decoder: Any, layers: Sequence[int]) -> None:
        if runner.use_aux_hidden_state_outputs:
            raise UnsupportedError(
                "the drafter of this engine already owns the decoder's auxiliary outputs",
                hint="leave speculative decoding out, or use ngram speculation",
            )
        # vLLM counts the embeddings as 0: index l + 1 is the stream after block l.
        self.decoder, self.layers = decoder, tuple(layers)
        decoder._set_aux_hidden_state_layers(tuple(layer + 1 for layer in layers))
        runner.use_aux_hidden_state_outputs = True

    def states(self, execute_state: Any) -> dict[int, Tensor]:
        """The states (T, d) of each layer, rows in the order of the batch."""
        return dict(zip(self.layers, execute_state.aux_hidden_states, strict=True))

    def shown(self, output: Any) -> list[Tensor]:
        """The states of each layer after one call of the decoder, from what it returned."""
        return list(output[1])


class HookTap:
    """Blocks' outputs copied by forward hooks into buffers that outlive the step."""

    def __init__(self, runner: Any, decoder: Any, layers: Sequence[int]) -> None:
        self.decoder, self.layers = decoder, tuple(layers)
        width = decoder.norm.weight.shape[0]
        self.buffers = [
            torch.zeros(runner.max_num_tokens, width, dtype=runner.dtype, device=runner.device)
            for _ in layers
        ]
        for layer, buffer in zip(layers, self.buffers, strict=True):
            decoder.layers[layer].register_forward_hook(_copy_into(buffer))

    def states(self, execute_state: Any) -> dict[int, Tensor]:
        """The states (T, d) of each layer, rows in the order of the batch."""
        return dict(zip(self.layers, self.buffers, strict=True))

    def shown(self, output: Any) -> list[Tensor]:
        """The states of each layer after one call of the decoder."""
        return [buffer[:PROBE].clone() for buffer in self.buffers]


def _copy_into(buffer: Tensor) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        hidden = _stream(output)
        buffer[: hidden.shape[0]].copy_(hidden)

    return hook


def tap_for(runner: Any, decoder: Any, layers: Sequence[int]) -> AuxTap | HookTap:
    """Tap auxiliary outputs if the decoder has them, else use hooks; ``layers`` ascend, as vLLM returns them."""
    tap = AuxTap if hasattr(decoder, "_set_aux_hidden_state_layers") else HookTap
    return tap(runner, decoder, layers)


@torch.inference_mode()
def check_tap(tap: AuxTap | HookTap, runner: Any, config: Any) -> None:
    """Refuse a compiled decoder that returns the states of other blocks, as one from a stale cache would.

    Noise goes through the compiled decoder and through its Python source; each tap must be nearest to its block.
    """
    decoder = tap.decoder
    if getattr(decoder, "do_not_compile", True):
        return
    from vllm.forward_context import set_forward_context

    width, device = decoder.norm.weight.shape[0], runner.device
    noise = torch.randn(PROBE, width, generator=torch.Generator().manual_seed(0)).to(device, runner.dtype)
    positions = torch.arange(PROBE, device=device)
    if config.model_config.uses_mrope:
        positions = positions.expand(3, -1).contiguous()

    def run(skip_compiled: bool) -> Any:
        context = set_forward_context(None, config, num_tokens=PROBE, skip_compiled=skip_compiled)
        with context, _without_attention(decoder):
            return decoder(
                input_ids=None, positions=positions, intermediate_tensors=None, inputs_embeds=noise.clone()
            )

    found = [states[:PROBE].float().clone() for states in tap.shown(run(skip_compiled=False))]
    blocks: list[Tensor] = []
    hooks = [layer.register_forward_hook(_keep_in(blocks)) for layer in decoder.layers]
    try:
        run(skip_compiled=True)
    finally:
        for hook in hooks:
            hook.remove()
    nearest = [min(range(len(blocks)), key=lambda k: float((blocks[k] - one).norm())) for one in found]
    if nearest != list(tap.layers):
        raise MismatchError(
            f"vLLM's compiled decoder hands out the states of blocks {nearest}, but blocks {list(tap.layers)} are read",
            hint="its compile cache is stale: remove it (VLLM_CACHE_ROOT/torch_compile_cache), or set "
            "VLLM_DISABLE_COMPILE_CACHE=1",
        )


@contextmanager
def _without_attention(decoder: Any) -> Iterator[None]:
    """Make attention add nothing: without metadata, some of vLLM's backends leave their output uninitialized."""

    def forward(*args: Any, output: Tensor, **kwargs: Any) -> Tensor:
        return output.zero_()

    found = [module.impl for module in decoder.modules() if hasattr(module, "impl")]
    for one in found:
        one.forward = forward
    try:
        yield
    finally:
        for one in found:
            del one.forward


def _keep_in(blocks: list[Tensor]) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        blocks.append(_stream(output).float())

    return hook


def _stream(output: Any) -> Tensor:
    """Return the residual stream after a block; vLLM's blocks return it in two parts."""
    found: Tensor = output[0] + output[1] if isinstance(output, tuple) else output
    return found


def decoder_of(model: Any) -> Any:
    """Return the part of a vLLM model that holds ``layers`` and the final ``norm``."""
    language_model = model.get_language_model()
    holder = getattr(language_model, "model", language_model)
    if not (hasattr(holder, "layers") and hasattr(holder, "norm")):
        raise UnsupportedError(
            f"{type(model).__name__} keeps its blocks and final norm in an unknown place",
            hint="use the transformers engine (reweigh.attach)",
        )
    return holder


class _Head(nn.Module):
    """A model's ``compute_logits`` as the head of a lens."""

    def __init__(self, model: Any, rows: int, width: int) -> None:
        super().__init__()
        self.compute = model.compute_logits
        self.out_features, self.in_features = rows, width

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.compute(states)
        return logits


def vllm_lens(
    model: Any, decoder: Any, vocab_size: int, dtype: str, made_with: Mapping[str, Any], rows: int
) -> Lens:
    """Return the lens a table was made with, built from the modules of a vLLM model of ``dtype``; it ranks ``rows``."""
    if made_with.get("lens") == "float32" and dtype != "float32":
        raise UnsupportedError(
            f"this table ranks float32 logits, but vLLM runs the model in {dtype}",
            hint="calibrate with native logits (the default), or serve with --dtype float32",
        )
    head = _Head(model, vocab_size, decoder.norm.weight.shape[0])
    return Lens(decoder.norm, head, chunk=made_with.get("chunk", CHUNK), rows=rows)
