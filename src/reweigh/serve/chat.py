"""``/v1/chat/completions``: from a parsed request to rows, and from their pieces to OpenAI's answers and frames."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from reweigh.decoding import ReweighSession
from reweigh.engines.transformers.session import Session
from reweigh.errors import ReweighError
from reweigh.method.edit import check_beta
from reweigh.rivals import DECODERS
from reweigh.serve.answers import Answers, ClientLeft
from reweigh.serve.batch import streams
from reweigh.serve.bounds import Bounds
from reweigh.serve.parse import did_you_mean, shortened
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import Problem, problem_of
from reweigh.serve.row import Piece, Row
from reweigh.serve.sampling import Sampling
from reweigh.serve.served import UNEDITED, Served
from reweigh.serve.wire import ChatRequest
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
    """The rows of a request, one per choice; refuses what cannot be decoded."""
    if asked.n > bounds.choices:
        raise Problem(
            400, f"n is {asked.n}; this server takes {bounds.choices}", param="n", code="invalid_value"
        )
    name = decoder_name(served, asked)
    session, betas = choose(served, asked, name)
    if not streams(session) and (asked.logprobs or asked.temperature):
        raise Problem(
            400,
            f"{name} is a search: it has no log-probabilities and no temperature",
            param="logprobs" if asked.logprobs else "temperature",
            code="unsupported_field",
        )
    sampling = Sampling.of(
        served.anatomy.language_model.generation_config,
        session.decoder.generation,
        temperature=asked.temperature,
        top_p=asked.top_p,
    )
    most = answer_length(served, bounds, asked, prepared.prompt_tokens)
    if asked.options.trace and most * asked.n > TRACED_TOKENS:
        raise Problem(
            400,
            f"reweigh.trace: {asked.n} answers of {most:,} tokens are too long; this server traces {TRACED_TOKENS:,} "
            "tokens of a request",
            param="reweigh.trace",
            code="invalid_value",
        )
    return [
        Row(
            index=index,
            prepared=prepared,
            session=session,
            decoder=name,
            send=send,
            table_session=table_session_of(served, session),
            sampling=sampling,
            beta=beta,
            seed=None if asked.seed is None else (asked.seed + index) % 2**63,
            most=most,
            stops=asked.stops,
            logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
            evidence=asked.options.evidence,
            trace=asked.options.trace,
        )
        for index, beta in enumerate(betas)
    ]


def decoder_name(served: Served, asked: ChatRequest) -> str:
    """The decoder of a request; the base model by default if ReWEIGH is not available."""
    options = asked.options
    says = "decoder" in options.model_fields_set or options.beta is not None or options.layer is not None
    return "base" if served.reason is not None and not says else options.decoder


def choose(served: Served, asked: ChatRequest, name: str) -> tuple[Session, list[float]]:
    """The session of a request and the beta of each choice."""
    options = asked.options
    if name not in DECODERS:
        offered = [one["name"] for one in served.decoders()]
        raise Problem(
            400,
            f"no decoder is called {shortened(name)!r}{did_you_mean(name, offered)} "
            f"(this server offers {', '.join(sorted(offered))})",
            param="reweigh.decoder",
            code="invalid_value",
        )
    try:
        session = served.session(name, options.layer)
        if name in UNEDITED or not isinstance(session, ReweighSession):
            if options.beta is not None:
                raise Problem(
                    400,
                    f"reweigh.beta belongs to the decoder reweigh, not to {name}",
                    param="reweigh.beta",
                    code="invalid_value",
                )
            return session, [0.0] * asked.n
        given = session.beta if options.beta is None else options.beta
        betas = given if isinstance(given, list) else [given] * asked.n
        return session, [check_beta(beta) for beta in betas]
    except ReweighError as error:
        refused = problem_of(error, served.hidden)
        refused.param = refused.param or "reweigh"
        raise refused from error


def table_session_of(served: Served, session: Session) -> ReweighSession | None:
    """Whose table the tokens are compared with: the session's own, or the server's for another decoder."""
    if isinstance(session, ReweighSession):
        return session
    return None if served.reason is not None else served.reweigh()


def check_prompt(served: Served, bounds: Bounds, prompt: int) -> None:
    """Refuse a prompt that is longer than the server or the model takes."""
    if prompt > bounds.prompt_tokens or (served.context is not None and prompt >= served.context):
        most = min(bounds.prompt_tokens, (served.context or prompt + 1) - 1)
        raise Problem(
            400,
            f"the prompt has {prompt:,} tokens; this server takes {most:,}",
            param="messages",
            code="context_length_exceeded",
        )


def answer_length(served: Served, bounds: Bounds, asked: ChatRequest, prompt: int) -> int:
    """Tokens the answer may have."""
    room = bounds.new_tokens if served.context is None else min(bounds.new_tokens, served.context - prompt)
    given = asked.max_completion_tokens or asked.max_tokens
    if given is None:
        return min(DEFAULT_TOKENS, room)
    if given > room:
        raise Problem(
            400,
            f"max_tokens is {given:,}; after a prompt of {prompt:,} tokens this server writes at most {room:,}",
            param="max_completion_tokens" if asked.max_completion_tokens else "max_tokens",
            code="context_length_exceeded" if room < bounds.new_tokens else "invalid_value",
        )
    return given


class Reply:
    """Turns the pieces of a request into OpenAI's objects.

    Attributes:
        generated: Tokens written so far, over all choices.
    """

    def __init__(self, served: Served, asked: ChatRequest, rows: list[Row]) -> None:
        self._asked = asked
        self._rows = rows
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": served.name,
            "system_fingerprint": None,
        }
        self._counts = [0] * len(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def decoder(self) -> str:
        """Who writes the answers."""
        return self._rows[0].decoder

    @property
    def generated(self) -> int:
        """Tokens written so far, over all choices."""
        return sum(self._counts)

    @property
    def changed(self) -> int:
        """Steps so far at which the edit put another token first, over all choices."""
        return sum(row.changed for row in self._rows)

    @property
    def prepared(self) -> Prepared:
        """The prompt, which all choices share."""
        return self._rows[0].prepared

    @property
    def outcome(self) -> str:
        """What was done to the answers, for a header: edited with which beta and layer, or by which other decoder.

        ``changed`` is there once the answers are complete.
        """
        row = self._rows[0]
        if row.session is not row.table_session or not any(one.beta for one in self._rows):
            return f"unedited; decoder={row.decoder}"
        if row.prepared.key is None:
            return "unedited; no image"
        betas = ",".join(dict.fromkeys(f"{one.beta:g}" for one in self._rows))
        changed = f"; changed={self.changed}" if all(one.done for one in self._rows) else ""
        return f"edited; beta={betas}; layer={row.table_session.layer}{changed}"

    def usage(self) -> dict[str, int]:
        """Tokens read and written."""
        prompt = self.prepared.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.generated,
            "total_tokens": prompt + self.generated,
        }

    async def whole(self, answers: Answers) -> dict[str, Any]:
        """The answer of a request that does not stream."""
        pieces: list[list[Piece]] = [[] for _ in self._rows]
        async for piece in answers.pieces():
            pieces[piece.index].append(piece)
            self._counts[piece.index] = piece.count
        choices = [self._choice(row, own) for row, own in zip(self._rows, pieces, strict=True)]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": self.usage()}

    def _choice(self, row: Row, pieces: list[Piece]) -> dict[str, Any]:
        text = replace_surrogates("".join(piece.text for piece in pieces))
        tokens = [token for piece in pieces for token in piece.tokens]
        logprobs = [entry for piece in pieces for entry in piece.logprobs]
        return {
            "index": row.index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None if row.logprobs is None else {"content": logprobs, "refusal": None},
            "finish_reason": pieces[-1].finish,
            **self._extras(row, tokens),
        }

    async def frames(self, first: Piece, rest: AsyncIterator[Piece]) -> AsyncIterator[str]:
        """The server-sent events of a streaming request; an error is the last frame but one."""
        for row in self._rows:
            yield self._frame([self._delta(row, {"role": "assistant", "content": ""})])
        try:
            for frame in self._frames_of(first):
                yield frame
            async for piece in rest:
                for frame in self._frames_of(piece):
                    yield frame
        except ClientLeft:
            raise
        except Problem as problem:
            yield _event(problem.body())
            yield "data: [DONE]\n\n"
            return
        if self._with_usage:
            yield self._frame([], usage=self.usage())
        yield "data: [DONE]\n\n"

    def _frames_of(self, piece: Piece) -> Iterator[str]:
        row = self._rows[piece.index]
        self._counts[piece.index] = piece.count or self._counts[piece.index]
        if piece.text or piece.tokens or piece.logprobs:
            yield self._frame([self._delta(row, {"content": replace_surrogates(piece.text)}, piece)])
        if piece.finish is not None:
            yield self._frame([self._delta(row, {}, finish=piece.finish)])

    @property
    def _with_usage(self) -> bool:
        options = self._asked.stream_options
        return options is not None and options.include_usage

    def _delta(
        self, row: Row, delta: dict[str, Any], piece: Piece | None = None, finish: str | None = None
    ) -> dict[str, Any]:
        logprobs = list(piece.logprobs) if piece is not None and row.logprobs is not None else None
        return {
            "index": row.index,
            "delta": delta,
            "logprobs": None if logprobs is None else {"content": logprobs, "refusal": None},
            "finish_reason": finish,
            **({} if piece is None else self._extras(row, list(piece.tokens))),
        }

    def _extras(self, row: Row, tokens: list[dict[str, Any]]) -> dict[str, Any]:
        """The ``reweigh`` object of a choice."""
        if not row.evidence and not row.trace:
            return {}
        table_session = row.table_session
        return {
            "reweigh": {
                "decoder": row.decoder,
                "beta": row.beta if row.session is table_session else None,
                "layer": None if table_session is None else table_session.layer,
                "b0": None if table_session is None else table_session.table.scale,
                "tokens": tokens,
            }
        }

    def _frame(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> str:
        frame = {**self._head, "object": "chat.completion.chunk", "choices": choices}
        return _event({**frame, "usage": usage} if self._with_usage else frame)


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
