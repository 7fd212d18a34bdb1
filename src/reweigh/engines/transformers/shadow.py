"""A method of one model instance, with a function before it while somebody asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


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
