"""Hooks and shadowed methods on the modules of one model, and their removal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from reweigh.engines.transformers.shadow import Shadow


class Hooks:
    """What was put on a model. A compiled forward breaks its graph at a hook instead of tracing it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def __len__(self) -> int:
        return len(self._undo)

    def before(self, module: nn.Module, hook: Callable[..., None], *, prepend: bool = False) -> None:
        """Call ``hook`` ahead of a module."""
        quiet = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
        self._undo.append(module.register_forward_pre_hook(quiet, with_kwargs=True, prepend=prepend).remove)

    def after(self, module: nn.Module, hook: Callable[..., Any]) -> None:
        """Call ``hook`` with a module's output, which it may replace."""
        quiet = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
        self._undo.append(module.register_forward_hook(quiet).remove)

    def shadow(
        self, module: Any, name: str, function: Callable[..., Any], is_active: Callable[[], bool]
    ) -> None:
        """Put a function before a method; removal brings back exactly what was there."""
        own = vars(module)
        before = own.get(name)
        own[name] = Shadow(module, name, function, is_active)
        self._undo.append(lambda: own.pop(name) if before is None else own.update({name: before}))

    def remove(self) -> None:
        """Take everything off, the last first."""
        while self._undo:
            self._undo.pop()()
