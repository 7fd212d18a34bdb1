"""Which request a thread or an asynchronous task has open on a model.

Requests nest. A thread or task sees its own requests only; what runs in a copy of a context (``asyncio.to_thread``,
``contextvars.copy_context().run``) sees those of the context it was copied from, as long as they are open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from reweigh.runtime.decoder import Request


class Opened:
    """One open request on one model, and what was open around it.

    Attributes:
        model: The model it belongs to.
        request: The request.
        paused: Whether its decoder is left out of forward passes: those that the decoder runs itself.
        outer: What was open around it.
        closed: Whether it was closed, in whichever context.
    """

    __slots__ = ("closed", "model", "outer", "paused", "request")

    def __init__(self, model: Any, request: Request, paused: bool, outer: Opened | None) -> None:
        self.model = model
        self.request = request
        self.paused = paused
        self.outer = outer
        self.closed = False


_innermost: ContextVar[Opened | None] = ContextVar("reweigh_request", default=None)


def opened_on(model: Any) -> Opened | None:
    """The innermost open request of this context on a model."""
    found = _innermost.get()
    while found is not None and (found.closed or found.model is not model):
        found = found.outer
    return found


def opened_around(model: Any) -> Iterator[Opened]:
    """All open requests of this context on a model, the innermost first."""
    found = _innermost.get()
    while found is not None:
        if found.model is model and not found.closed:
            yield found
        found = found.outer


def enter(model: Any, request: Request, *, paused: bool = False) -> Opened:
    """Open a request in this context."""
    opened = Opened(model, request, paused, _innermost.get())
    _innermost.set(opened)
    return opened


def leave(opened: Opened) -> None:
    """Close a request in every context that has it; requests may close in another order than they opened."""
    opened.closed = True
    found = _innermost.get()
    while found is not None and found.closed:
        found = found.outer
    _innermost.set(found)


@contextmanager
def paused(model: Any) -> Iterator[None]:
    """Run forward passes without the open request's decoder: a branch, the lens, a description of its own."""
    found = opened_on(model)
    if found is None:
        yield
        return
    inner = enter(model, found.request, paused=True)
    try:
        yield
    finally:
        leave(inner)
