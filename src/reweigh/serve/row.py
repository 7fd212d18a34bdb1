"""One answer in progress: its settings, how it picks tokens, its growing text, and the pieces in which it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from reweigh.attached import Attached
from reweigh.engines.session import Session
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import Problem

COLDEST = 1e-5
"""Below this temperature, only the likeliest token is left, and the division would overflow."""
UNFINISHED = "\ufffd"
"""What a tokenizer returns for an incomplete character."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some tokens of one answer.

    Attributes:
        index: Which answer of its request.
        text: New text.
        tokens: What is known of each new token, if the row asked for it.
        logprobs: OpenAI's entry for each new token, if the row asked for it.
        finish: "stop" or "length" with the last piece.
        problem: Why the answer ends unfinished.
    """

    index: int
    text: str = ""
    tokens: tuple[dict[str, Any], ...] = ()
    logprobs: tuple[dict[str, Any], ...] = ()
    finish: str | None = None
    problem: Problem | None = None

    @property
    def ends(self) -> bool:
        """Whether it is the last piece of its answer."""
        return self.finish is not None or self.problem is not None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 is greedy; ``top_k`` 0, ``top_p`` 1 and ``repetition_penalty`` 1 have no effect."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0

    @classmethod
    def of(
        cls,
        settings: Any,
        method: Mapping[str, Any],
        *,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        repetition_penalty: float | None = None,
    ) -> Sampling:
        """Combine the model's settings with what the decoder needs and what the caller asks for; the caller wins."""
        names = ("do_sample", "temperature", "top_p", "top_k", "repetition_penalty")
        own = {name: getattr(settings, name, None) for name in names}
        found = {**own, **{name: value for name, value in method.items() if name in own}}
        default = cls(repetition_penalty=found["repetition_penalty"] or 1.0)
        if found["do_sample"]:
            warm = 1.0 if found["temperature"] is None else found["temperature"]
            top = 1.0 if found["top_p"] is None else found["top_p"]
            default = cls(warm, top, found["top_k"] or 0, default.repetition_penalty)
        return cls(
            default.temperature if temperature is None else temperature,
            default.top_p if top_p is None else top_p,
            default.top_k if top_k is None else max(0, top_k),
            default.repetition_penalty if repetition_penalty is None else repetition_penalty,
        )


@dataclass(slots=True, eq=False)
class Row:
    """One answer to write.

    Attributes:
        index: Which answer of its request.
        prepared: Its inputs.
        session: The decoder that writes it.
        send: Takes its pieces; called in the thread that decodes.
        decoder: The decoder's name.
        table_session: The session whose table its tokens are compared with; ``None`` if there is none.
        beta: Maximum penalty, if ReWEIGH decodes.
        seed: Seed of its own random numbers.
        most: Tokens it may have.
        stops: Strings that end it.
        logprobs: How many alternatives to report at each token; ``None`` for no log-probabilities at all.
        evidence: Whether each token is reported with its evidence.
        trace: Whether each step is reported with its candidates, too.
        left: Set once its client has left.
        written: Tokens written so far.
        done: Whether its last piece was sent.
        changed: Steps at which the edit put another token first.
        client: Whose it is.
        order: When it is its turn among its client's rows.
    """

    index: int
    prepared: Prepared
    session: Session
    send: Callable[[Piece], None]
    decoder: str = "reweigh"
    table_session: Attached | None = None
    sampling: Sampling = field(default_factory=Sampling)
    beta: float = 0.0
    seed: int | None = None
    most: int = 512
    stops: tuple[str, ...] = ()
    logprobs: int | None = None
    evidence: bool = False
    trace: bool = False
    left: bool = False
    written: int = 0
    done: bool = False
    changed: int = 0
    client: str = ""
    order: int = 0

    @property
    def needs_evidence(self) -> bool:
        """Whether anything is edited or reported by evidence."""
        return bool(self.beta) or self.evidence or self.trace

    def end(self, piece: Piece) -> None:
        """Send the last piece."""
        if not self.done:
            self.done = True
            self.send(piece)

    def fail(self, problem: Problem) -> None:
        """End with a problem."""
        self.end(Piece(self.index, problem=problem))


class Picker:
    """Picks the tokens of one row as ``generate`` would for this row alone, after ``torch.manual_seed(seed)``."""

    def __init__(self, sampling: Sampling, seed: int | None, device: torch.device) -> None:
        self.greedy = sampling.temperature < COLDEST
        self._penalty = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)
        self.penalizes = sampling.repetition_penalty != 1
        self._warpers: list[Any] = []
        if self.greedy:
            return
        self._random = torch.Generator(device=device)
        if seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(seed)
        if sampling.temperature != 1:
            self._warpers.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k:
            self._warpers.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            self._warpers.append(TopPLogitsWarper(sampling.top_p))

    def penalized(self, tokens: Tensor, logits: Tensor) -> Tensor:
        """Return logits (V,) with the repetition penalty for the tokens (T,) of prompt and answer so far."""
        penalized: Tensor = self._penalty(tokens[None], logits[None])[0]
        return penalized

    def pick(self, logits: Tensor) -> int:
        """Draw the next token of a row that is not greedy, from logits (V,)."""
        scores = logits[None]
        for warp in self._warpers:
            scores = warp(None, scores)
        shares = torch.nn.functional.softmax(scores, dim=-1)
        return int(torch.multinomial(shares, 1, generator=self._random))


class GrowingText:
    """Text that grows token by token: whole characters only, possible stop strings held back.

    All pieces together equal the text of all tokens decoded at once.

    Attributes:
        text: Everything decoded so far, without leading white space.
        stopped: Whether a stop string was found; the text ends before it.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._ids: list[int] = []
        self._from = 0
        self._read = 0
        self._sent = 0
        self.text = ""
        self.stopped = False

    def push(self, token: int) -> tuple[int, int]:
        """Add a token; return which characters of the text it added."""
        self._ids.append(token)
        start = len(self.text)
        known = self._decode(self._ids[self._from : self._read])
        longer = self._decode(self._ids[self._from :])
        if not longer.endswith(UNFINISHED):
            self._from, self._read = self._read, len(self._ids)
            piece = longer[len(known) :]
            self.text += piece if self.text else piece.lstrip()
            self._cut(max(0, start - max(map(len, self._stops), default=0)))
        return min(start, len(self.text)), len(self.text)

    def ready(self) -> str:
        """Return what can be sent now: neither trailing white space nor the possible start of a stop string."""
        end = len(self.text) if self.stopped else len(self.text) - self._possible_stop()
        end = max(self._sent, len(self.text[:end].rstrip()))
        new = self.text[self._sent : end]
        self._sent = end
        return new

    def finish(self) -> str:
        """Return what is left to send after the last token."""
        if not self.stopped:
            whole = self._decode(self._ids).strip()
            self.text = whole if whole.startswith(self.text[: self._sent]) else self.text
            self._cut(0)
        self.text = self.text.rstrip()
        new = self.text[self._sent :]
        self._sent = len(self.text)
        return new

    def _cut(self, start: int) -> None:
        """End the text before the first stop string."""
        found = [place for stop in self._stops if (place := self.text.find(stop, start)) >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True

    def _possible_stop(self) -> int:
        """Count the characters at the end that may begin a stop string."""
        lengths = ((stop, length) for stop in self._stops for length in range(1, len(stop)))
        return max((length for stop, length in lengths if self.text.endswith(stop[:length])), default=0)

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""
