"""Edits inside the model: of the residual stream, of MLP outputs, and which attention keys are an image's.

A :class:`StreamEditor` has hooks on blocks while one of its runs is open; on a compiled model they stay. They act on
the passes of its own runs only: not on those of other threads, tasks or decoders, and not while the decoder is
suspended (the lens, a description, a branch) unless it says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from reweigh.engines.base import Decoder, Pass
from reweigh.engines.rows import Row
from reweigh.engines.run import active, opened
from reweigh.engines.transformers.manager import HookManager, forget_compiled
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy

_beside: ContextVar[Pass | None] = ContextVar("reweigh_beside", default=None)


@contextmanager
def edited_beside(forward: Pass) -> Iterator[None]:
    """Let edits of the stream act on passes that the decoder runs beside this one, such as those of a branch."""
    token = _beside.set(forward)
    try:
        yield
    finally:
        _beside.reset(token)


class StreamEditor(Decoder):
    """Base of the methods that edit the residual stream or the outputs of MLPs; rows without an image are never edited.

    Attributes:
        state_layers: Blocks after which the stream goes through ``edit_state``; -1 is the embeddings.
        mlp_layers: Blocks whose MLP goes through ``edit_mlp``.
    """

    state_layers: Collection[int] = ()
    mlp_layers: Collection[int] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._hooks: HookManager | None = None
        self._undo: list[Callable[[], None]] = []
        self._stays = False

    def edit_state(self, layer: int, states: Tensor, forward: Pass) -> Tensor | None:
        """Return the stream (B, T, d) to use after a block, or ``None`` to leave it."""
        return None

    def edit_mlp(self, layer: int, x: Tensor, out: Tensor, forward: Pass) -> Tensor | None:
        """Return the output (B, T, d) to use for an MLP's input ``x``, or ``None`` to leave ``out``."""
        return None

    def engage(self, hooks: HookManager) -> Callable[[], None]:
        """Put hooks on the blocks unless they are there already; return the function that removes them."""
        self._hooks = hooks
        if not self._undo and (self.state_layers or self.mlp_layers):
            # find all modules first, so that a refusal leaves no hook behind
            exits = {layer: self.anatomy.exit_of(layer) for layer in self.state_layers}
            mlps = {layer: mlp_of(self.anatomy, layer) for layer in self.mlp_layers}
            for layer, module in exits.items():
                before = _quiet(self._before_exit, layer)
                self._undo.append(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            for layer, module in mlps.items():
                after = _quiet(self._after_mlp, layer)
                self._undo.append(module.register_forward_hook(after, with_kwargs=True).remove)
            self._stays = forget_compiled(self.anatomy.model, wrapped=self.anatomy.compiled)
        return self._disengage

    def _disengage(self) -> None:
        """Remove the hooks, except from a compiled model: it would have to be compiled again for each run."""
        while self._undo and not self._stays:
            self._undo.pop()()

    def _edited_pass(self) -> Pass | None:
        """Return the pass to edit now: the running one, or the one beside which the decoder runs passes to be edited."""
        run = opened(self.anatomy.model)
        if run is None or run.decoder is not self or self._hooks is None:
            return None
        forward = self._hooks.forward
        acts = active(self.anatomy.model) is run or forward is _beside.get()
        return forward if acts else None

    def _before_exit(
        self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        forward = self._edited_pass()
        if module is not self.anatomy.exit_of(layer) or forward is None:  # a copied model has copied hooks
            return None
        state = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(state, Tensor) or state.ndim != 3:
            raise UnsupportedError(
                f"the stream after block {layer} of {type(self.anatomy.model).__name__} is not (B, T, d)",
                hint="this family keeps several streams between blocks; use another decoder",
            )
        new = self.edit_state(layer, state, forward)
        if new is None:
            return None
        new = in_image_rows(new, state, forward)
        return ((new, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": new})

    def _after_mlp(
        self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> Tensor | None:
        forward = self._edited_pass()
        if module is not getattr(self.anatomy.blocks[layer], "mlp", None) or forward is None:
            return None
        if not isinstance(out, Tensor):
            raise UnsupportedError(
                f"the MLP of block {layer} returned a {type(out).__name__}, not a tensor",
                hint="mixtures of experts cannot be edited there; use another decoder",
            )
        new = self.edit_mlp(layer, args[0] if args else kwargs["x"], out, forward)
        return None if new is None else in_image_rows(new, out, forward)


def _quiet(method: Callable[..., Any], layer: int) -> Callable[..., Any]:
    """Make a hook that breaks the graph of a compiled forward instead of being traced, and keeps no decoder alive."""
    kept = weakref.WeakMethod(method)

    def hook(*given: Any) -> Any:
        own = kept()
        return None if own is None else own(layer, *given)

    return torch.compiler.disable(hook)  # type: ignore[no-untyped-call,no-any-return]


def mlp_of(anatomy: Anatomy, layer: int) -> nn.Module:
    """Return the MLP of a block; refuse a block without one, or with experts."""
    block: Any = anatomy.blocks[layer]
    mlp = getattr(block, "mlp", None)
    name = type(anatomy.model).__name__
    if not isinstance(mlp, nn.Module):
        reason = f"block {layer} of {name}, a {type(block).__name__}, has no part called mlp"
    elif any(hasattr(mlp, part) for part in ("experts", "router")):
        reason = f"block {layer} of {name} is a mixture of experts, whose output cannot be edited"
    else:
        return mlp
    raise UnsupportedError(reason, hint="use a decoder that does not edit MLPs")


def require_plain_mlps(anatomy: Anatomy, method: str) -> None:
    """Refuse a family that norms an MLP's output: the length that the edit keeps would be lost."""
    if hasattr(anatomy.blocks[0], "post_feedforward_layernorm"):
        raise UnsupportedError(
            f"{type(anatomy.model).__name__} norms the output of its MLPs, so the length that {method} keeps is lost",
            hint="use another decoder on this family",
        )


def turned(x: Tensor, direction: Tensor, strength: float, *, against: bool = False) -> Tensor:
    """Turn states (..., d) toward a direction and keep their length: |x| unit(unit(x) + strength unit(v)).

    With ``against`` the strength is multiplied by 1 + max(0, cos(x, -v)): states that point away are turned more.
    """
    push = strength * F.normalize(direction, dim=-1)
    if against:
        push = push * (1 + F.cosine_similarity(x, -direction, dim=-1).clamp_min(0)[..., None])
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return length * F.normalize(F.normalize(x, dim=-1) + push, dim=-1)


def in_image_rows(edited: Tensor, own: Tensor, forward: Pass) -> Tensor:
    """Return ``edited`` (B, T, d) in rows that have an image and ``own`` in the others, in the type of ``own``."""
    has_image = [bool(row.positions) for row in forward.rows_of(len(own))]
    chosen = torch.tensor(has_image, device=own.device)[:, None, None]
    return torch.where(chosen, edited.to(own.dtype), own)


def image_keys(rows: Sequence[Row], total: int, width: int, device: torch.device) -> Tensor:
    """Return which of the last ``width`` of ``total`` attention keys of each row are image columns, bool (rows, width)."""
    mask = torch.zeros(len(rows), total, dtype=torch.bool)
    for index, row in enumerate(rows):
        mask[index, [column for column in row.positions if column < total]] = True
    return last_keys(mask, width).to(device)


def unpadded(forward: Pass) -> Tensor:
    """Mark the columns of each row up to the end of the pass that are not padding, bool (B, n)."""
    mask = forward.arguments.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2:  # a pre-allocated cache has a mask of four dimensions
        given = forward.prompt.inputs.get("attention_mask")
        rows = [row.index for row in forward.rows]
        mask = torch.ones(len(rows), 0) if given is None else given[rows]
    total = forward.past + forward.length
    return F.pad(mask[:, :total].bool(), (0, max(0, total - mask.shape[1])), value=True)


def last_keys(mask: Tensor, width: int) -> Tensor:
    """Return the last ``width`` columns of a mask (B, n); a longer, pre-allocated cache has empty keys after them."""
    total = mask.shape[1]
    return mask[:, total - width :] if width <= total else F.pad(mask, (0, width - total))
