"""Chat completions: from a request to the rows that answer it, and from their pieces to OpenAI's objects."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from reweigh.attached import Attached
from reweigh.engines.session import Session
from reweigh.errors import ReweighError
from reweigh.method.edit import check_beta
from reweigh.rivals import DECODERS
from reweigh.serve.batch import streams
from reweigh.serve.bounds import Bounds
from reweigh.serve.monitor import Metrics
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import Problem, invalid, problem_of
from reweigh.serve.row import Piece, Row, Sampling
from reweigh.serve.scheduler import Answers
from reweigh.serve.served import BASE, Served
from reweigh.serve.wire import ChatRequest, unknown_name
from reweigh.text import replace_surrogates

DEFAULT_TOKENS = 512
"""Longest answer if the request does not set it."""
TRACED_TOKENS = 8_192
"""Tokens of one request that can be traced; each takes about 8 KB in the answer."""


def make_rows(
    served: Served,
    bounds: Bounds,
    asked: ChatRequest,
    prepared: Prepared,
    send: Callable[[Piece], None],
) -> list[Row]:
    """Make the rows of a request, one for each choice; refuse what cannot be decoded."""
    options, name = asked.options, _decoder(served, asked)
    try:
        session = served.session(name, options.layer)
        betas = _betas(session, asked, name)
        table_session = session if isinstance(session, Attached) else None
        if (
            table_session is None and served.reason is None
        ):  # tokens of other decoders are compared with it, too
            table_session = served.reweigh()
    except ReweighError as error:
        raise problem_of(error, served.hidden, param="reweigh") from error
    unsearched = [one for one in ("logprobs", "temperature", "repetition_penalty") if getattr(asked, one)]
    if not streams(session) and unsearched:
        raise invalid(
            unsearched[0],
            f"{name} is a search: it has no log-probabilities, no temperature and no repetition penalty",
            code="unsupported_field",
        )
    sampling = Sampling.of(
        served.anatomy.language_model.generation_config,
        session.decoder.generation,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        repetition_penalty=asked.repetition_penalty,
    )
    most = _answer_length(served, bounds, asked, prepared.prompt_tokens)
    if options.trace and most * asked.n > TRACED_TOKENS:
        raise invalid(
            "reweigh.trace",
            f"reweigh.trace: {asked.n} answers of {most:,} tokens are too long; this server traces at most "
            f"{TRACED_TOKENS:,} tokens per request",
        )
    return [
        Row(
            index=index,
            prepared=prepared,
            session=session,
            decoder=name,
            send=send,
            table_session=table_session,
            sampling=sampling,
            beta=beta,
            seed=None if asked.seed is None else (asked.seed + index) % 2**63,
            most=most,
            stops=tuple(asked.stop),
            logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
            evidence=options.evidence or options.trace,
            trace=options.trace,
        )
        for index, beta in enumerate(betas)
    ]


def _decoder(served: Served, asked: ChatRequest) -> str:
    """Return the decoder of a request; by default the base model if ReWEIGH is not available."""
    options = asked.options
    if served.reason is not None and not options.model_fields_set & {"decoder", "beta", "layer"}:
        return BASE
    name, offered = options.decoder, served.offered
    if name in DECODERS and name not in (*offered, "reweigh"):
        told = f"this server does not offer the decoder {name}; it offers {', '.join(offered)}"
        raise invalid("reweigh.decoder", told, code="decoder_not_offered")
    if name not in DECODERS:
        raise unknown_name("decoder", name, offered, param="reweigh.decoder")
    return name


def _betas(session: Session, asked: ChatRequest, name: str) -> list[float]:
    """Return the beta of each choice."""
    given = asked.options.beta
    if name == BASE or not isinstance(session, Attached):
        if given is not None:
            raise invalid("reweigh.beta", f"reweigh.beta belongs to the decoder reweigh, not to {name}")
        return [0.0] * asked.n
    given = session.beta if given is None else given
    return [check_beta(beta) for beta in (given if isinstance(given, list) else [given] * asked.n)]


def check_prompt(served: Served, prompt: int) -> None:
    """Refuse a prompt that leaves no room in the model's context."""
    if prompt >= served.context:
        told = f"the prompt has {prompt:,} tokens; this model takes at most {served.context - 1:,}"
        raise invalid("messages", told, code="context_length_exceeded")


def _answer_length(served: Served, bounds: Bounds, asked: ChatRequest, prompt: int) -> int:
    """Return how many tokens the answer may have: no more than the server and the model's context allow.

    Evaluation harnesses ask for more than most models have (16,384), so a larger number is no error.
    """
    room = min(bounds.new_tokens, served.context - prompt)
    return min(asked.asked_tokens or DEFAULT_TOKENS, room)


class Reply:
    """Turns the pieces of a request into OpenAI's objects."""

    def __init__(self, model: str, asked: ChatRequest, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._asked_tokens = asked.asked_tokens or 0
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": None,
        }
        self._with_usage = asked.stream_options is not None and asked.stream_options.include_usage

    def count(self, metrics: Metrics, note: dict[str, Any]) -> None:
        """Count what was written, and note it for the log."""
        first, usage, changed = self._rows[0], self._usage(), self._changed()
        note |= {"new": usage["completion_tokens"], "changed": changed}
        metrics.tokens.labels("prompt").inc(usage["prompt_tokens"])
        metrics.tokens.labels("generated").inc(usage["completion_tokens"])
        metrics.answers(first.decoder, len(self._rows), changed)

    @property
    def outcome(self) -> str:
        """Say what was done to the answers, for a header: edited with which beta, layer and table, or by which decoder.

        ``max_tokens`` is there if the request asked for more. ``changed`` is there once the answers are complete.
        """
        most = self._rows[0].most
        return self._edited() + (f"; max_tokens={most}" if most < self._asked_tokens else "")

    def _edited(self) -> str:
        row = self._rows[0]
        if row.session is not row.table_session or not any(one.beta for one in self._rows):
            return f"unedited; decoder={row.decoder}"
        if row.prepared.key is None:
            return "unedited; no image"
        betas = ",".join(dict.fromkeys(f"{one.beta:g}" for one in self._rows))
        changed = f"; changed={self._changed()}" if all(one.done for one in self._rows) else ""
        return f"edited; beta={betas}; layer={row.table_session.layer}{changed}"

    def _changed(self) -> int:
        """Count the steps so far at which the edit put another token first, over all choices."""
        return sum(row.changed for row in self._rows)

    def _usage(self) -> dict[str, int]:
        prompt, new = self._rows[0].prepared.prompt_tokens, sum(row.written for row in self._rows)
        return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}

    async def whole(self, answers: Answers) -> dict[str, Any]:
        """Return the answer to a request that does not stream."""
        pieces: list[list[Piece]] = [[] for _ in self._rows]
        async for piece in answers.pieces():
            pieces[piece.index].append(piece)
        choices = []
        for row, own in zip(self._rows, pieces, strict=True):
            text = replace_surrogates("".join(piece.text for piece in own))
            message = {"role": "assistant", "content": text, "refusal": None}
            choices.append(self._choice(row, {"message": message}, own, own[-1].finish))
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage()}

    async def frames(self, first: Piece, rest: AsyncIterator[Piece]) -> AsyncIterator[str]:
        """Yield the server-sent events of a streaming request; an error is the last frame but one."""
        for row in self._rows:
            yield self._frame([self._choice(row, {"delta": {"role": "assistant", "content": ""}})])
        try:
            for frame in self._frames_of(first):
                yield frame
            async for piece in rest:
                for frame in self._frames_of(piece):
                    yield frame
            if self._with_usage:
                yield self._frame([], usage=self._usage())
        except Problem as problem:
            yield _event(problem.body())
        yield "data: [DONE]\n\n"

    def _frames_of(self, piece: Piece) -> Iterator[str]:
        row = self._rows[piece.index]
        if piece.text or piece.tokens or piece.logprobs:
            delta = {"content": replace_surrogates(piece.text)}
            yield self._frame([self._choice(row, {"delta": delta}, [piece])])
        if piece.finish is not None:
            yield self._frame([self._choice(row, {"delta": {}}, finish=piece.finish)])

    def _choice(
        self, row: Row, said: dict[str, Any], pieces: Sequence[Piece] = (), finish: str | None = None
    ) -> dict[str, Any]:
        """Return a choice of an answer or a frame: what is said, with log-probabilities and tokens of some pieces."""
        logprobs = [entry for piece in pieces for entry in piece.logprobs]
        choice = {
            "index": row.index,
            **said,
            "logprobs": {"content": logprobs, "refusal": None}
            if pieces and row.logprobs is not None
            else None,
            "finish_reason": finish,
        }
        if pieces and row.evidence:
            session = row.table_session
            choice["reweigh"] = {
                "decoder": row.decoder,
                "beta": row.beta if row.session is session else None,
                "layer": None if session is None else session.layer,
                "b0": None if session is None else session.table.b0,
                "tokens": [token for piece in pieces for token in piece.tokens],
            }
        return choice

    def _frame(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> str:
        frame = {**self._head, "object": "chat.completion.chunk", "choices": choices}
        return _event({**frame, "usage": usage} if self._with_usage else frame)


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
