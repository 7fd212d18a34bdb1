"""What is put on the modules of one model, and its removal: hooks, shadowed methods, and the graphs of compiled parts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Shadow:
    """Stands on an instance in the place of its method: calls ``function(original, ...)`` while ``active()``.

    A deep copy of the instance gets its own plain method back, so that a copied model is not tied to anything.
    """

    def __init__(
        self, owner: Any, name: str, function: Callable[..., Any], active: Callable[[], bool]
    ) -> None:
        self._owner = owner
        self._name = name
        self._original = _method(owner, name)
        self._function = function
        self._active = active
        functools.update_wrapper(self, self._original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._active():
            return self._function(self._original, *args, **kwargs)
        return self._original(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo.get(id(self._owner))
        return self if copied is None else getattr(type(copied), self._name).__get__(copied)


def _method(owner: Any, name: str) -> Any:
    """The method to call; not the one that transformers put there for a model folder with ``custom_generate``.

    That one opens a session of its own, so calling it from a session would never end.
    """
    found = vars(owner).get(name)
    if isinstance(found, functools.partial) and found.keywords.get("model") is owner:
        return getattr(type(owner), name).__get__(owner)
    return getattr(owner, name)


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


def forget_compiled(model: nn.Module, *, wrapped: bool = False) -> bool:
    """Drop the graphs of this process if the model's wrapper or any part is compiled; tell whether that was so."""
    if not (wrapped or any(_is_compiled(module) for module in model.modules())):
        return False
    import torch._dynamo

    torch._dynamo.reset()
    return True


def _is_compiled(module: Any) -> bool:
    if getattr(module, "_compiled_call_impl", None) is not None:  # module.compile()
        return True
    own = vars(module)  # generate keeps its compiled call there; a user may have replaced forward
    return any(hasattr(own.get(name), "_torchdynamo_orig_callable") for name in ("_compiled_call", "forward"))
