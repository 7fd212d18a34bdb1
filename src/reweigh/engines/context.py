"""Which request a thread or an asynchronous task has open on a model.

Requests nest. A thread or task sees its own requests only; what is run in a copy of a context
(``asyncio.to_thread``, ``contextvars.copy_context().run``) sees those of the context it was copied from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from reweigh.engines.base import Request


class Opened:
    """One open request on one model, and what was open around it.

    Attributes:
        model: The model it belongs to.
        request: The request.
        shown: Whether forward passes are shown to its decoder; not those that the decoder runs itself.
        outer: What was open around it.
    """

    __slots__ = ("model", "outer", "request", "shown")

    def __init__(self, model: Any, request: Request, shown: bool, outer: Opened | None) -> None:
        self.model = model
        self.request = request
        self.shown = shown
        self.outer = outer


_innermost: ContextVar[Opened | None] = ContextVar("reweigh_request", default=None)


def opened_on(model: Any) -> Opened | None:
    """The innermost open request of this context on a model."""
    found = _innermost.get()
    while found is not None and found.model is not model:
        found = found.outer
    return found


def enter(model: Any, request: Request, *, shown: bool = True) -> Opened:
    """Open a request in this context."""
    opened = Opened(model, request, shown, _innermost.get())
    _innermost.set(opened)
    return opened


def leave(opened: Opened) -> None:
    """Close a request of this context, and whatever was left open inside it."""
    _innermost.set(opened.outer)


@contextmanager
def unshown(model: Any) -> Iterator[None]:
    """Run forward passes that the open request's decoder is not shown: a branch, the lens, a description of its own."""
    found = opened_on(model)
    if found is None:
        yield
        return
    inner = enter(model, found.request, shown=False)
    try:
        yield
    finally:
        leave(inner)
