"""Which request a thread or an asynchronous task has open on a model.

Requests nest. A thread or task sees its own requests only; what runs in a copy of a context (``asyncio.to_thread``,
``contextvars.copy_context().run``) sees those of the context it was copied from, as long as they are open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from reweigh.engines.base import Decoder, Request


@dataclass(slots=True, eq=False)
class OpenRequest:
    """One open request on one model, and what was open around it.

    Attributes:
        model: The model it belongs to.
        request: The request.
        suspended: Whether forward passes bypass its decoder, as those do that the decoder runs itself.
        outer: What was open around it.
        closed: Whether it was closed, in whichever context.
        prompt: The prompt of the ``generate`` call it was opened for.
    """

    model: Any
    request: Request
    suspended: bool
    outer: OpenRequest | None
    closed: bool = False
    prompt: Any = None


innermost: ContextVar[OpenRequest | None] = ContextVar("reweigh_request", default=None)


def opened_on(model: Any) -> OpenRequest | None:
    """Return the innermost open request of this context on a model."""
    return next(opened_around(model), None)


def opened_around(model: Any) -> Iterator[OpenRequest]:
    """Yield all open requests of this context on a model, the innermost first."""
    found = innermost.get()
    while found is not None:
        if found.model is model and not found.closed:
            yield found
        found = found.outer


def outer_request(decoder: Decoder) -> Request | None:
    """Return the decoder's request that is open in this thread or task."""
    opened = opened_on(decoder.anatomy.model)
    return opened.request if opened is not None and opened.request.decoder is decoder else None


def enter(model: Any, request: Request, *, suspended: bool = False) -> OpenRequest:
    """Open a request in this context."""
    opened = OpenRequest(model, request, suspended, innermost.get())
    innermost.set(opened)
    return opened


def leave(opened: OpenRequest) -> None:
    """Close a request in every context that has it; requests may close in another order than they opened."""
    opened.closed = True
    found = innermost.get()
    while found is not None and found.closed:
        found = found.outer
    innermost.set(found)


@contextmanager
def suspended(model: Any) -> Iterator[None]:
    """Run forward passes, generations or measurements that the open request's decoder must not see."""
    found = opened_on(model)
    if found is None:
        yield
        return
    inner = enter(model, found.request, suspended=True)
    try:
        yield
    finally:
        leave(inner)
