"""One answer in progress: its settings, and the pieces in which it is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reweigh.decoding import ReweighSession
from reweigh.engines.transformers.session import Session
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import Problem
from reweigh.serve.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Piece:
    """Some tokens of one answer.

    Attributes:
        index: Which answer of its request.
        text: Text that is new.
        tokens: What is known of each new token, where the row asked for it.
        logprobs: OpenAI's entry for each new token, where the row asked for it.
        finish: "stop" or "length" with the last piece.
        count: Tokens written so far.
        problem: Why the answer ends without being finished.
    """

    index: int
    text: str = ""
    tokens: tuple[dict[str, Any], ...] = ()
    logprobs: tuple[dict[str, Any], ...] = ()
    finish: str | None = None
    count: int = 0
    problem: Problem | None = None

    @property
    def ends(self) -> bool:
        """Whether it is the last piece of its answer."""
        return self.finish is not None or self.problem is not None


@dataclass(slots=True, eq=False)
class Row:
    """One answer to be written.

    Attributes:
        index: Which answer of its request.
        prepared: Its inputs.
        session: The decoder it is written with.
        decoder: That decoder's name.
        send: Takes its pieces; called in the thread that decodes.
        table_session: The session whose table its tokens are compared with; ``None`` where there is none.
        beta: Maximum penalty, where ReWEIGH decodes.
        seed: Seed of its own random numbers.
        most: Tokens it may have.
        stops: Strings that end it.
        logprobs: How many alternatives to report at each token; ``None`` for no log-probabilities at all.
        evidence: Whether each token is reported with its evidence.
        trace: Whether each step is reported with its candidates.
        left: Set once its client has left.
        begun: Whether a token was written.
        done: Whether its last piece was sent.
        changed: Steps at which the edit put another token first.
    """

    index: int
    prepared: Prepared
    session: Session
    send: Callable[[Piece], None]
    decoder: str = "reweigh"
    table_session: ReweighSession | None = None
    sampling: Sampling = field(default_factory=Sampling)
    beta: float = 0.0
    seed: int | None = None
    most: int = 512
    stops: tuple[str, ...] = ()
    logprobs: int | None = None
    evidence: bool = False
    trace: bool = False
    left: bool = False
    begun: bool = False
    done: bool = False
    changed: int = 0

    def end(self, piece: Piece) -> None:
        """Send the last piece."""
        if not self.done:
            self.done = True
            self.send(piece)

    def fail(self, problem: Problem) -> None:
        """End it with a problem."""
        self.end(Piece(self.index, problem=problem))
