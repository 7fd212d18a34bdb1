"""Decode rows together: one ``generate`` in which each row has its own beta, sampling, length and end.

``generate`` itself does what it always does; a logits processor at the end of its list picks each row's token and
sends it off, and a stopping criterion ends rows one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from reweigh.decoding import ReweighSession
from reweigh.decoding.request import ReweighRequest
from reweigh.engines.transformers.recall import Recall
from reweigh.engines.transformers.session import Session, end_tokens
from reweigh.families.processor import tokenizer_of
from reweigh.method.trace import Recorded
from reweigh.serve.metrics import Metrics
from reweigh.serve.prepare import stack
from reweigh.serve.row import Piece, Row
from reweigh.serve.sampling import Picker
from reweigh.serve.support import Support, measured_supports, supports, token_facts
from reweigh.serve.text import GrowingText

GREEDY = {"do_sample": False, "num_beams": 1, "temperature": None, "top_p": None, "top_k": None}
"""``generate`` takes what the rows picked."""


def streams(session: Session) -> bool:
    """Whether a decoder writes token by token; a search knows its answer only at the end."""
    decoder = session.decoder
    return decoder.loop is None and decoder.generation.get("num_beams", 1) == 1


class Abandoned(Exception):
    """Nobody waits for the answers any more."""


def decode(rows: Sequence[Row], recall: Recall, metrics: Metrics) -> None:
    """Write the answers of some rows of one session, in one batch; stop early once no client waits for them."""
    here = threading.get_ident()  # another thread may use the same model

    def look(*_: Any) -> None:
        if threading.get_ident() == here:
            _require_someone(rows)

    handle = rows[0].session.model.register_forward_pre_hook(look)
    try:
        _decode(rows, recall, metrics)
    except Abandoned:
        pass
    finally:
        handle.remove()


def _require_someone(rows: Sequence[Row]) -> None:
    """End before the next forward pass: some decoders run many before the first token (a description, a search)."""
    if all(row.left for row in rows):
        raise Abandoned


def _decode(rows: Sequence[Row], recall: Recall, metrics: Metrics) -> None:
    session = rows[0].session
    tokenizer = tokenizer_of(session.processor)
    inputs = stack([row.prepared for row in rows], pad=tokenizer.pad_token_id or 0)
    support = None if isinstance(session, ReweighSession) else measured_supports(rows, recall)
    if not streams(session):
        _decode_whole(rows[0], inputs, None if support is None else support[0])
        return
    with ExitStack() as open_until_end, torch.no_grad():
        winners = Winners()
        request = _open(session, rows, recall, metrics, winners, open_until_end)
        writer = Writer(rows, session, tokenizer, request, winners, support)
        session.model.generate(
            **inputs,
            **GREEDY,
            max_new_tokens=max(row.most for row in rows),
            logits_processor=[writer],
            stopping_criteria=[_Ends(rows)],
        )


class Winners:
    """Observes which token leads each row before and after the edit of the latest step."""

    def __init__(self) -> None:
        self._latest: tuple[list[int], list[int]] | None = None

    def record(self, recorded: Recorded) -> None:
        """Receive one step."""
        self._latest = recorded.before.tolist(), recorded.after.tolist()

    def replaced(self, row: int) -> int | None:
        """The token that would have led a row without the edit, if another one does."""
        if self._latest is None:
            return None
        before, after = (winners[row] for winners in self._latest)
        return None if before == after else before


def _open(
    session: Session,
    rows: Sequence[Row],
    recall: Recall,
    metrics: Metrics,
    winners: Winners,
    stack: ExitStack,
) -> ReweighRequest | None:
    """Open the rows' request; evidence that is kept is given, what is measured is kept when the batch ends."""
    if not isinstance(session, ReweighSession):
        stack.enter_context(session.request())
        return None
    reader = session.decoder.deployed.reader
    keys = [row.prepared.key or "" for row in rows]
    known = recall.find(keys, reader)
    betas = [row.beta for row in rows]
    trace = any(row.trace for row in rows)
    observer = winners if any(betas) else None
    request = stack.enter_context(session.request(beta=betas, evidence=known, trace=trace, observer=observer))
    metrics.evidence(
        recalled=sum(one is not None for one in known),
        measured=sum(bool(key) and one is None for key, one in zip(keys, known, strict=True)),
    )

    def keep() -> None:
        if request.rows:
            recall.keep(keys, known, request.evidence, reader)

    stack.callback(keep)
    return request


def _decode_whole(row: Row, inputs: dict[str, Any], support: Support | None) -> None:
    """Write an answer that is known only at the end."""
    answer = row.session.respond(
        inputs, seed=row.seed, max_new_tokens=row.most, stopping_criteria=[_Ends([row])]
    )[0]
    if row.done:
        return
    tokenizer = tokenizer_of(row.session.processor)
    growing = GrowingText(tokenizer, row.stops)
    known = []
    for step, token in enumerate(answer.tokens):
        span = growing.push(token)
        if row.evidence or row.trace:
            known.append(token_facts(token, str(tokenizer.decode([token])), step, span, support))
        if growing.stopped:
            break
    text = growing.ready() + growing.finish()
    ended = growing.stopped or (answer.tokens and answer.tokens[-1] in _ends_of(row.session))
    finish = "stop" if ended else "length"
    row.end(Piece(row.index, text, tuple(known), finish=finish, count=len(answer.tokens)))


class Writer(LogitsProcessor):
    """Picks and sends the next token of each row."""

    def __init__(
        self,
        rows: Sequence[Row],
        session: Session,
        tokenizer: Any,
        request: ReweighRequest | None,
        winners: Winners,
        support: list[Support | None] | None,
    ) -> None:
        device = session.model.device
        self._rows = rows
        self._tokenizer = tokenizer
        self._request = request
        self._winners = winners
        self._ends = _ends_of(session)
        self._pickers = [Picker(row.sampling, row.seed, device) for row in rows]
        self._texts = [GrowingText(tokenizer, row.stops) for row in rows]
        self._counts = [0] * len(rows)
        self._support = support
        self._steps = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        best, picked = scores.argmax(dim=-1).tolist(), scores
        for index, row in enumerate(self._rows):
            if row.done or row.left:
                continue
            picker = self._pickers[index]
            token = best[index] if picker.greedy else picker.pick(scores[index])
            self._write(index, token, scores[index])
            if token != best[index]:  # generate takes the highest
                picked = scores.clone() if picked is scores else picked
                picked[index] = -torch.inf
                picked[index, token] = 0.0
        self._steps += 1
        return picked

    def _write(self, index: int, token: int, logits: Tensor) -> None:
        row, text = self._rows[index], self._texts[index]
        row.begun = True
        self._counts[index] += 1
        count, ended = self._counts[index], token in self._ends
        span = text.push(token)
        replaced = self._winners.replaced(index)
        row.changed += replaced is not None
        finish = "stop" if ended or text.stopped else "length" if count >= row.most else None
        new = text.ready() if finish is None else text.ready() + text.finish()
        known = (self._facts(index, token, span, replaced),) if row.evidence or row.trace else ()
        logprobs = () if row.logprobs is None else (self._logprob(token, logits, row.logprobs),)
        piece = Piece(row.index, new, known, logprobs, finish, count)
        if finish is not None:
            row.end(piece)
        elif new or known or logprobs:
            row.send(piece)

    def _facts(self, index: int, token: int, span: tuple[int, int], replaced: int | None) -> dict[str, Any]:
        """What is known of a token."""
        row = self._rows[index]
        if self._support is None:  # ReWEIGH's own evidence is there once the prompt was read
            evidence = [] if self._request is None else self._request.evidence
            self._support = supports(row.table_session, evidence, len(self._rows))
        step = self._counts[index] - 1
        known = token_facts(token, self._word(token), step, span, self._support[index])
        request = self._request
        if request is not None:
            known["replaced"] = None if replaced is None else self._named(replaced)
        if row.trace and request is not None and len(request.trace) > self._steps:
            found = request.trace.step(self._steps, index)
            known |= {
                "winner_before": self._named(found.winner_before),
                "winner_after": self._named(found.winner_after),
                "candidates": [candidate.to_json() for candidate in found.candidates],
            }
        return known

    def _logprob(self, token: int, logits: Tensor, others: int) -> dict[str, Any]:
        shares = torch.log_softmax(logits.float(), dim=-1)
        values, ids = shares.topk(min(others, len(shares)))
        top = [self._shared(i, v) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]
        return {**self._shared(token, float(shares[token])), "top_logprobs": top}

    def _shared(self, token: int, value: float) -> dict[str, Any]:
        word = self._word(token)
        return {"token": word, "logprob": max(value, -9999.0), "bytes": list(word.encode("utf-8", "replace"))}

    def _named(self, token: int) -> dict[str, Any]:
        return {"token": token, "text": self._word(token)}

    def _word(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))


class _Ends(StoppingCriteria):
    """Which rows are over."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        over = [row.done or row.left for row in self._rows]
        times = len(input_ids) // len(over)  # beams of one row end together
        return torch.tensor(over, device=input_ids.device).repeat_interleave(times)


def _ends_of(session: Session) -> frozenset[int]:
    return frozenset(end_tokens(session.decoder.anatomy.language_model))
