"""One caller's settings of ReWEIGH, and a table ready for decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.engines.transformers.gather import Gatherer
from reweigh.engines.transformers.trail import Trail
from reweigh.errors import InputError
from reweigh.method.evidence import Evidence
from reweigh.method.lens import Lens
from reweigh.method.trace import Observer, Trace
from reweigh.runtime.decoder import Request
from reweigh.tables.table import ReferenceTable

if TYPE_CHECKING:
    from reweigh.decoding.reweigh import ReWEIGH


class Deployed:
    """A table ready for decoding: verified against the model, its references and the reader of its evidence."""

    def __init__(self, table: ReferenceTable, lens: Lens, kernel: str) -> None:
        self.table = table
        self.lens = lens
        self.gatherer = Gatherer(
            lens, [table.layer], tokens=table.tokens.tolist(), kernel=kernel, readouts=[table.readout]
        )
        self.tokens = torch.from_numpy(table.tokens)
        self.references = torch.from_numpy(table.references).float()

    def reference_vector(self) -> Tensor:
        """b(v) over the vocabulary, NaN where a token is not registered."""
        references = torch.full((self.lens.vocab_size,), float("nan"))
        references[self.tokens] = self.references
        return references


class ReweighRequest(Request):
    """What one caller wants of ReWEIGH.

    Attributes:
        deployed: The table in use.
        beta: Maximum penalty, one for all or one for each row of the prompt.
        given: Evidence measured before, one for each row of the prompt; rows of ``None`` are measured.
        observers: Whoever is shown every step, the trace included.
        outer: The request it is nested in.
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
        self.trail: Trail | None = None

    def follow(self, trail: Trail) -> None:
        """Remember the sequence of the latest prompt, here and in the requests around this one."""
        self.trail = trail
        if self.outer is not None:
            self.outer.follow(trail)

    @property
    def trace(self) -> Trace:
        """The steps decoded so far."""
        if self._trace is None:
            raise InputError("this request keeps no trace", hint="ask for one: request(trace=True)")
        return self._trace

    @property
    def evidence(self) -> list[Evidence | None]:
        """The evidence of the latest prompt's rows, measured or given; ``None`` for a row without image."""
        return [] if self.trail is None else self.deployed.gatherer.evidence(self.trail)

    def betas(self, rows: Sequence[int], prompts: int, repeat: int, device: torch.device) -> Tensor:
        """The penalties of some prompt rows, laid out over their forward rows."""
        if isinstance(self.beta, tuple) and len(self.beta) != prompts:
            raise InputError(
                f"{len(self.beta)} betas were given for a prompt of {prompts} rows",
                hint="give one number, or one for each row",
            )
        own = [self.beta[row] if isinstance(self.beta, tuple) else self.beta for row in rows]
        return torch.tensor(own, dtype=torch.float32, device=device).repeat_interleave(repeat)


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
