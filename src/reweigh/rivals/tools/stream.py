"""Editing the residual stream and the outputs of MLPs: hooks on the blocks while a decoder asks for them.

A decoder installs them in ``engage``; on a compiled model they stay. They act on the passes of its own requests only: not
on those of other threads, tasks or decoders, and not while it is suspended (the lens, a description, a branch) unless it
says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.engines.transformers.hooks import forget_compiled
from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.runtime.context import opened_on
from reweigh.runtime.decoder import Decoder
from reweigh.runtime.forward import Pass

StateEdit = Callable[[int, Tensor, Pass], Tensor | None]
"""From a block and the residual stream (B, T, d) after it to another stream, or ``None`` to leave it."""

MlpEdit = Callable[[int, Tensor, Tensor, Pass], Tensor | None]
"""From a block, its MLP's input and output (B, T, d) to another output, or ``None`` to leave it."""


class StreamEdit:
    """The edits of one decoder."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.anatomy = decoder.anatomy
        self._hooks: HookManager | None = None
        self._states: dict[int, StateEdit] = {}
        self._mlps: dict[int, MlpEdit] = {}
        self._undo: list[Callable[[], None]] = []
        self._stays = False

    def install(
        self,
        hooks: HookManager,
        *,
        states: Mapping[int, StateEdit] | None = None,
        mlps: Mapping[int, MlpEdit] | None = None,
    ) -> Callable[[], None]:
        """Put the edits of some blocks on the model; return what takes them off. Block -1 is the embeddings."""
        self._hooks, before = hooks, len(self._undo)
        # found first: a refusal leaves no hook behind
        parts = {layer: mlp_of(self.anatomy, layer) for layer in mlps or {}}
        for layer in [layer for layer in states or {} if layer not in self._states]:
            hook, module = _quiet(self._before_exit, layer), self.anatomy.exit_of(layer)
            self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        for layer in [layer for layer in parts if layer not in self._mlps]:
            after = _quiet(self._after_mlp, layer)
            self._undo.append(parts[layer].register_forward_hook(after, with_kwargs=True).remove)
        self._states.update(states or {})
        self._mlps.update(mlps or {})
        if len(self._undo) > before:
            self._stays = forget_compiled(self.anatomy.model, wrapped=self.anatomy.compiled)
        return self._remove

    def _remove(self) -> None:
        """Take the hooks off, except off a compiled model: it would have to be compiled again for each request."""
        if self._stays:
            return
        while self._undo:
            self._undo.pop()()
        self._states.clear()
        self._mlps.clear()

    def forward(self) -> Pass | None:
        """The pass whose stream is edited now: the one that runs, or one beside which the decoder edits its own."""
        opened = opened_on(self.anatomy.model)
        if opened is None or opened.request.decoder is not self.decoder or self._hooks is None:
            return None
        forward = self._hooks.forward
        acts = forward is not None and (not opened.suspended or forward.edits_beside)
        return forward if acts else None

    def _before_exit(
        self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        forward = self.forward()
        if module is not self.anatomy.exit_of(layer) or forward is None:  # a copied model has copied hooks
            return None
        state = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(state, Tensor) or state.ndim != 3:
            raise UnsupportedError(
                f"the stream after block {layer} of {type(self.anatomy.model).__name__} is not (B, T, d)",
                hint="this family keeps several streams between blocks; use another decoder",
            )
        new = self._states[layer](layer, state, forward)
        if new is None:
            return None
        return ((new, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": new})

    def _after_mlp(
        self,
        layer: int,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
    ) -> Tensor | None:
        forward = self.forward()
        if module is not getattr(self.anatomy.blocks[layer], "mlp", None) or forward is None:
            return None
        if not isinstance(out, Tensor):
            raise UnsupportedError(
                f"the MLP of block {layer} returned a {type(out).__name__}, not a tensor",
                hint="mixtures of experts cannot be edited there; use another decoder",
            )
        return self._mlps[layer](layer, args[0] if args else kwargs["x"], out, forward)


def mlp_of(anatomy: Anatomy, layer: int) -> nn.Module:
    """The MLP of a block, or a refusal that names the block."""
    block: Any = anatomy.blocks[layer]
    mlp = getattr(block, "mlp", None)
    if not isinstance(mlp, nn.Module):
        raise UnsupportedError(
            f"block {layer} of {type(anatomy.model).__name__}, a {type(block).__name__}, has no part called mlp",
            hint="use a decoder that edits no MLP",
        )
    if any(hasattr(mlp, name) for name in ("experts", "router")):
        raise UnsupportedError(
            f"block {layer} of {type(anatomy.model).__name__} is a mixture of experts, whose output cannot be edited",
            hint="use a decoder that edits no MLP",
        )
    return mlp


def up_weight(mlp: nn.Module) -> Tensor:
    """The matrix by which an MLP widens its input, in float32; where gate and up are one matrix, both."""
    for name in ("up_proj", "gate_up_proj"):
        weight = getattr(getattr(mlp, name, None), "weight", None)
        if isinstance(weight, Tensor) and weight.is_floating_point():
            return weight.detach().float()
    raise UnsupportedError(
        f"{type(mlp).__name__} has no floating-point up_proj, whose scale is needed",
        hint="load the weights unquantised, or use a form of the method that does not read them",
    )


def _quiet(method: Callable[..., Any], layer: int) -> Callable[..., Any]:
    """A hook at which a compiled forward breaks its graph instead of tracing it; it does not keep its decoder."""
    kept = weakref.WeakMethod(method)

    def hook(*given: Any) -> Any:
        own = kept()
        return None if own is None else own(layer, *given)

    return torch.compiler.disable(hook)  # type: ignore[no-untyped-call,no-any-return]
