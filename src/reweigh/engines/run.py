"""A run: the settings of one call, open in the thread or task that opened it and in no other.

One run at a time may be open on a model in one place. What runs in a copy of a context (``asyncio.to_thread``) sees the run
of the context it was copied from, while that is open. Any other thread or task uses the model as if there were none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reweigh.errors import InputError, ReweighError, UnsupportedError

if TYPE_CHECKING:
    from reweigh.engines.base import Decoder
    from reweigh.engines.reader import Reader
    from reweigh.engines.rows import Row
    from reweigh.method.evidence import Evidence
    from reweigh.method.trace import Observer, Trace
    from reweigh.tables.table import ReferenceTable


@dataclass(eq=False, kw_only=True)
class Run:
    """Settings of one call, and what was recorded while it was open.

    Attributes:
        decoder: What edits the passes.
        layers: Blocks whose output it reads.
        options: The decoder's ``call_options`` that the caller set.
        beta: Maximum penalty, one for all or one for each row of the prompt.
        table: The reference table.
        reader: Reads the evidence that the table needs.
        known: Evidence to use instead of reading it, one for each row of the prompt; rows of ``None`` are read.
        observers: Are shown every step; the trace is one of them.
        rows: The rows of the latest prompt with an image.
        steps: The trace, if one was asked for.
        block: The block that ``with session:`` opened.
        uses: How many blocks and generations have it open.
    """

    decoder: Decoder
    layers: frozenset[int]
    options: Mapping[str, Any] = field(default_factory=dict)
    beta: float | tuple[float, ...] = 0.0
    table: ReferenceTable | None = None
    reader: Reader | None = None
    known: Sequence[Evidence | None] | None = None
    observers: tuple[Observer, ...] = ()
    steps: Trace | None = None
    rows: list[Row] = field(default_factory=list)
    block: AbstractContextManager[Any] | None = None
    uses: int = 0

    @property
    def trace(self) -> Trace:
        """The steps decoded so far."""
        if self.steps is None:
            raise InputError("this run keeps no trace", hint="ask for one: using(trace=True)")
        return self.steps

    @property
    def evidence(self) -> list[Evidence | None]:
        """The evidence of the latest prompt's rows, read or given; ``None`` for a row without image."""
        reader = self.reader
        return [] if reader is None else [reader.evidence(row) for row in self.rows]


Open = tuple[Run, bool]
"""A run, and whether passes bypass its decoder, as those do that the decoder runs itself."""

runs: ContextVar[Mapping[int, Open]] = ContextVar("reweigh_runs", default=MappingProxyType({}))
"""What is open in a thread or task, by the address of the model, which an open run keeps alive."""


def opened(model: Any) -> Run | None:
    """Return the run that is open here on a model, suspended or not."""
    run, _ = runs.get().get(id(model), (None, False))
    return run if run is not None and run.uses else None


def active(model: Any) -> Run | None:
    """Return the run that passes of a model belong to here."""
    run, is_suspended = runs.get().get(id(model), (None, False))
    return run if run is not None and run.uses and not is_suspended else None


@contextmanager
def opening(model: Any, run: Run) -> Iterator[Run]:
    """Open a run on a model in this thread or task."""
    if (other := active(model)) is not None:
        mine = "this decoder" if other.decoder is run.decoder else "another decoder"
        raise UnsupportedError(
            f"this {type(model).__name__} already follows {mine} here; `with` blocks of one model do not nest",
            hint="leave the other block first, or set everything at once: using(beta=..., trace=True)",
        )
    before = runs.get()
    runs.set({**before, id(model): (run, False)})
    try:
        yield run
    finally:
        now, own = dict(runs.get()), id(model)
        if now.get(own, (None,))[0] is not run:
            raise ReweighError(
                "this `with` block is left in another thread or task than it was entered in",
                hint="leave it where it was entered; close a generator in the task that reads it",
            )
        del now[own]
        runs.set({**now, own: before[own]} if own in before else now)


@contextmanager
def suspended(model: Any) -> Iterator[None]:
    """Run passes, generations or measurements that the open run's decoder must not see."""
    before, own = runs.get(), id(model)
    if own not in before:
        yield
        return
    runs.set({**before, own: (before[own][0], True)})
    try:
        yield
    finally:
        runs.set({**runs.get(), own: before[own]})
