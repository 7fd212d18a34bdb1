"""One caller's settings of ReWEIGH, and a table ready for decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.method.evidence import Evidence
from reweigh.method.lens import Lens
from reweigh.method.trace import Observer, Trace
from reweigh.runtime.decoder import Request
from reweigh.runtime.reader import Reader, Registered
from reweigh.tables.table import ReferenceTable

if TYPE_CHECKING:
    from reweigh.decoding.reweigh import Clip, ReWEIGH
    from reweigh.runtime.sequence import Sequence as Row


class Deployed:
    """A table ready for decoding: verified against the model, with the reader of its evidence."""

    def __init__(
        self, table: ReferenceTable, lens: Lens, kernel: str, clip: Clip, *, any_dtype: bool = False
    ) -> None:
        self.table = table
        self.lens = lens
        self.tokens = torch.from_numpy(table.tokens)
        self.references = torch.from_numpy(table.references).float()
        self.reader = Reader(
            lens,
            [table.layer],
            tokens=self.tokens,
            kernel=kernel,
            readouts=[table.readout],
            registered=Registered(
                self.tokens,
                self.references,
                table.scale,
                clip,
                None if any_dtype else table.made_with.get("dtype"),
            ),
        )

    def reference_vector(self) -> Tensor:
        """b(v) over the vocabulary, NaN where a token is not registered."""
        references = torch.full((self.lens.vocab_size,), float("nan"))
        references[self.tokens] = self.references
        return references


class ReweighRequest(Request):
    """One caller's settings of ReWEIGH.

    Attributes:
        deployed: The table in use.
        beta: Maximum penalty, one for all or one for each row of the prompt.
        given: Evidence measured before, one for each row of the prompt; rows of ``None`` are measured.
        observers: Receive every step; the trace is one of them.
        outer: The request it is nested in.
        rows: The sequence of each row of the latest prompt with an image.
    """

    decoder: ReWEIGH

    def __init__(
        self,
        decoder: ReWEIGH,
        layers: frozenset[int],
        deployed: Deployed,
        beta: float | tuple[float, ...],
        given: Sequence[Evidence | None] | None,
        observers: tuple[Observer, ...],
        trace: Trace | None,
        outer: ReweighRequest | None = None,
    ) -> None:
        super().__init__(decoder, layers)
        self.outer = outer
        self.deployed = deployed
        self.beta = beta
        self.given = given
        self.observers = observers
        self._trace = trace
        self.rows: list[Row] = []

    def follow(self, rows: list[Row]) -> None:
        """Remember the rows of the latest prompt, here and in the requests around this one."""
        self.rows = rows
        if self.outer is not None:
            self.outer.follow(rows)

    @property
    def trace(self) -> Trace:
        """The steps decoded so far."""
        if self._trace is None:
            raise InputError("this request keeps no trace", hint="ask for one: request(trace=True)")
        return self._trace

    @property
    def evidence(self) -> list[Evidence | None]:
        """The evidence of the latest prompt's rows, measured or given; ``None`` for a row without image."""
        return [self.deployed.reader.evidence(row) for row in self.rows]

    def betas(self, rows: Sequence[Row], prompts: int) -> list[float]:
        """Return the penalties of some rows of a batch of ``prompts`` prompts."""
        if not isinstance(self.beta, tuple):
            return [self.beta] * len(rows)
        if len(self.beta) != prompts:
            raise InputError(
                f"{len(self.beta)} betas were given for a prompt of {prompts} rows",
                hint="give one number, or one for each row",
            )
        return [self.beta[row.row] for row in rows]


def check_options(evidence: Any, observer: Any) -> None:
    """Refuse evidence and observers that would fail at the first step."""
    if isinstance(evidence, Evidence):
        raise InputError("one Evidence was given", hint="give a list, one for each row of the prompt")
    for one in evidence or ():
        if not isinstance(one, Evidence | None):
            raise InputError(
                f"evidence holds a {type(one).__name__}",
                hint="give what `reweigh.measure` or `request.evidence` returned",
            )
    if observer is not None and not callable(getattr(observer, "record", None)):
        raise InputError(f"observer is a {type(observer).__name__} without a method `record`")
