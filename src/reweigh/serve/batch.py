"""Decode rows together: one ``generate`` in which each row has its own beta, sampling, length and end.

The last logits processor picks and sends each row's token; a stopping criterion ends rows one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from reweigh.attached import Attached
from reweigh.engines.run import Run
from reweigh.engines.session import Session
from reweigh.engines.transformers.answers import end_tokens
from reweigh.families.processor import tokenizer_of
from reweigh.method.evidence import Evidence
from reweigh.method.trace import Recorded
from reweigh.serve.evidence import Support, recall_or_measure, token_facts
from reweigh.serve.monitor import Metrics
from reweigh.serve.prepare import stack
from reweigh.serve.recall import Recall
from reweigh.serve.row import GrowingText, Picker, Piece, Row

GREEDY = {"do_sample": False, "num_beams": 1, "temperature": None, "top_p": None, "top_k": None} | {
    "repetition_penalty": 1.0
}
"""Each row picks its own token; ``generate`` only has to take it."""


def streams(session: Session) -> bool:
    """Whether a decoder writes token by token; a search knows its answer only at the end."""
    decoder = session.decoder
    return decoder.loop is None and decoder.generation.get("num_beams", 1) == 1


class Abandoned(Exception):
    """No client is waiting for the answers anymore."""


def decode(rows: Sequence[Row], recall: Recall, metrics: Metrics) -> None:
    """Decode rows of one session in one batch; stop early once no client waits for them."""
    here = threading.get_ident()  # another thread may use the same model

    def look(*_: Any) -> None:
        """Stop before the next forward pass: some decoders run many before the first token (a description, a search)."""
        if threading.get_ident() == here and all(row.left for row in rows):
            raise Abandoned

    handle = rows[0].session.model.register_forward_pre_hook(look)
    try:
        _decode(rows, recall, metrics)
    except Abandoned:
        pass
    finally:
        handle.remove()


def _decode(rows: Sequence[Row], recall: Recall, metrics: Metrics) -> None:
    session = rows[0].session
    tokenizer = tokenizer_of(session.processor)
    inputs = stack([row.prepared for row in rows], pad=tokenizer.pad_token_id or 0)
    writer = Writer(rows, session, tokenizer)
    opening: AbstractContextManager[Any]
    if isinstance(session, Attached):
        opening = _open(session, rows, recall, metrics, writer)
    else:
        opening = session.using()
        writer.support = [_support(row, recall) for row in rows]
    if not streams(session):
        _decode_whole(rows[0], inputs, writer)
        return
    with opening, torch.no_grad():
        session.model.generate(
            **inputs,
            **GREEDY,
            max_new_tokens=max(row.most for row in rows),
            logits_processor=[writer],
            stopping_criteria=[_Ends(rows)],
        )


def _support(row: Row, recall: Recall) -> Support | None:
    """Return the support of a row that another decoder writes: recall its evidence, or measure it in one pass."""
    if row.table_session is None or row.prepared.key is None or not row.evidence:
        return None
    session = row.table_session
    found, _ = recall_or_measure(session.model, recall, row.prepared, [session.decoder.reader])
    return Support(found[0], session)


@contextmanager
def _open(
    session: Attached, rows: Sequence[Row], recall: Recall, metrics: Metrics, writer: Writer
) -> Iterator[None]:
    """Open the rows' run with cached evidence; cache what is measured when the batch ends."""
    if not any(row.needs_evidence for row in rows):
        yield
        return
    reader = session.decoder.reader
    keys = [(row.prepared.key or "") if row.needs_evidence else "" for row in rows]
    known = recall.find(keys, reader)
    betas = [row.beta for row in rows]
    trace = any(row.trace for row in rows)
    observer = writer if any(betas) else None
    unread = recall.nothing(reader)
    given = [
        one if row.needs_evidence or row.prepared.key is None else unread
        for row, one in zip(rows, known, strict=True)
    ]
    with session.using(beta=betas, evidence=given, trace=trace, observer=observer) as run:
        writer.run = run
        missing = sum(bool(key) and one is None for key, one in zip(keys, known, strict=True))
        metrics.evidence.labels("measured").inc(missing)
        metrics.evidence.labels("recalled").inc(sum(one is not None for one in known))
        try:
            yield
        finally:
            if run.rows:
                recall.keep(keys, given, run.evidence, reader)


def _decode_whole(row: Row, inputs: dict[str, Any], writer: Writer) -> None:
    """Send an answer that is known only at the end."""
    answer = row.session.respond(
        inputs, seed=row.seed, max_new_tokens=row.most, stopping_criteria=[_Ends([row])]
    )[0]
    if row.done:
        return
    text, known = writer.texts[0], []
    for step, token in enumerate(answer.tokens):
        span = text.push(token)
        if row.evidence:
            known.append(token_facts(token, writer.word(token), step, span, writer.support[0]))
        if text.stopped:
            break
    ended = text.stopped or (answer.tokens and answer.tokens[-1] in writer.ends)
    finish, new = "stop" if ended else "length", text.ready() + text.finish()
    row.written = len(answer.tokens)
    row.end(Piece(row.index, new, tuple(known), finish=finish))


class Writer(LogitsProcessor):
    """Picks and sends the next token of each row; observes which token leads before and after the edit.

    Attributes:
        run: ReWEIGH's run, if it decodes.
        support: The support of each row; empty until ReWEIGH has read the prompt.
        texts: The text of each row.
        ends: The tokens that end an answer.
    """

    def __init__(self, rows: Sequence[Row], session: Session, tokenizer: Any) -> None:
        self.run: Run | None = None
        self.support: list[Support | None] = []
        self.texts = [GrowingText(tokenizer, row.stops) for row in rows]
        self.ends = frozenset(end_tokens(session.decoder.anatomy.language_model))
        self._rows = rows
        self._tokenizer = tokenizer
        self._pickers = [Picker(row.sampling, row.seed, session.model.device) for row in rows]
        self._leaders: tuple[list[int], list[int]] | None = None

    def record(self, recorded: Recorded) -> None:
        """Observe one step."""
        self._leaders = recorded.before.tolist(), recorded.after.tolist()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        best, picked = scores.argmax(dim=-1).tolist(), scores
        for index, row in enumerate(self._rows):
            if row.done or row.left:
                continue
            picker, logits, token = self._pickers[index], scores[index], best[index]
            if picker.penalizes:
                own = input_ids[index, -row.prepared.prompt_tokens - row.written :]  # without the padding
                logits = picker.penalized(own, logits)
                token = int(logits.argmax())
            if not picker.greedy:
                token = picker.pick(logits)
            self._write(index, token, logits)
            if token != best[index]:  # generate takes the highest
                picked = scores.clone() if picked is scores else picked
                picked[index] = -torch.inf
                picked[index, token] = 0.0
        return picked

    def _write(self, index: int, token: int, logits: Tensor) -> None:
        row, text = self._rows[index], self.texts[index]
        row.written += 1
        span = text.push(token)
        before, after = (0, 0) if self._leaders is None else (one[index] for one in self._leaders)
        replaced = None if before == after else before
        row.changed += replaced is not None
        stops = token in self.ends or text.stopped
        finish = "stop" if stops else "length" if row.written >= row.most else None
        new = text.ready() if finish is None else text.ready() + text.finish()
        known = (self._facts(index, token, span, replaced),) if row.evidence else ()
        logprobs = () if row.logprobs is None else (self._logprob(token, logits, row.logprobs),)
        piece = Piece(row.index, new, known, logprobs, finish)
        if finish is not None:
            row.end(piece)
        elif new or known or logprobs:
            row.send(piece)

    def _facts(self, index: int, token: int, span: tuple[int, int], replaced: int | None) -> dict[str, Any]:
        """Return what is reported about a token."""
        row, run = self._rows[index], self.run
        step = row.written - 1
        if run is not None and not self.support:  # known once the prompt has been read
            self.support = [self._own_support(one) for one in run.evidence] or [None] * len(self._rows)
        known = token_facts(token, self.word(token), step, span, self.support[index])
        if run is not None:
            known["replaced"] = None if replaced is None else self._named(replaced)
        if row.trace and run is not None and len(run.trace) > step:
            found = run.trace.step(step, index)
            known |= {
                "winner_before": self._named(found.winner_before),
                "winner_after": self._named(found.winner_after),
                "candidates": [candidate.to_json() for candidate in found.candidates],
            }
        return known

    def _own_support(self, evidence: Evidence | None) -> Support | None:
        session = self._rows[0].table_session
        return None if evidence is None or session is None else Support(evidence, session)

    def _logprob(self, token: int, logits: Tensor, others: int) -> dict[str, Any]:
        shares = torch.log_softmax(logits.float(), dim=-1)
        values, ids = shares.topk(min(others, len(shares)))
        top = [self._shared(i, v) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]
        return {**self._shared(token, float(shares[token])), "top_logprobs": top}

    def _shared(self, token: int, value: float) -> dict[str, Any]:
        word = self.word(token)
        return {"token": word, "logprob": max(value, -9999.0), "bytes": list(word.encode("utf-8", "replace"))}

    def _named(self, token: int) -> dict[str, Any]:
        return {"token": token, "text": self.word(token)}

    def word(self, token: int) -> str:
        """Return the text of one token."""
        return str(self._tokenizer.decode([token]))


class _Ends(StoppingCriteria):
    """Ends the rows that are done or left."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        over = [row.done or row.left for row in self._rows]
        times = len(input_ids) // len(over)  # beams of one row end together
        return torch.tensor(over, device=input_ids.device).repeat_interleave(times)
