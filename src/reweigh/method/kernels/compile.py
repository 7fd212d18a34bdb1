"""How the optional numba kernels are compiled: without the GIL, cached on disk where a folder can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile on first call; the next process loads the result instead, unless no cache folder is writable."""
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no place for its cache
        return njit(**options)(function)  # type: ignore[no-any-return]
