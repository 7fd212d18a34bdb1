"""From a parsed ``/v1/chat/completions`` request to the rows that answer it."""

from __future__ import annotations

from collections.abc import Callable

from reweigh.decoding import ReweighSession
from reweigh.engines.transformers.session import Session
from reweigh.errors import ReweighError
from reweigh.method.edit import check_beta
from reweigh.rivals import DECODERS
from reweigh.serve.batch import streams
from reweigh.serve.bounds import DEFAULT, Bounds
from reweigh.serve.parse import did_you_mean, shortened
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import invalid, problem_of
from reweigh.serve.row import Piece, Row, Sampling
from reweigh.serve.served import UNEDITED, Served
from reweigh.serve.wire import ChatRequest

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
        raise invalid("n", f"n is {asked.n}; this server takes {bounds.choices}")
    options, name = asked.options, _decoder(served, asked)
    try:
        table = _table(served, asked)
        session = served.session(name, options.layer, table)
        betas = _betas(session, asked, name)
        table_session = session if isinstance(session, ReweighSession) else None
        if table_session is None and table is not None:  # tokens of other decoders are compared with it, too
            table_session = served.reweigh(table=table)
    except ReweighError as error:
        raise problem_of(error, served.hidden, param="reweigh") from error
    if not streams(session) and (asked.logprobs or asked.temperature):
        raise invalid(
            "logprobs" if asked.logprobs else "temperature",
            f"{name} is a search: it has no log-probabilities and no temperature",
            code="unsupported_field",
        )
    sampling = Sampling.of(
        served.anatomy.language_model.generation_config,
        session.decoder.generation,
        temperature=asked.temperature,
        top_p=asked.top_p,
    )
    most = _answer_length(served, bounds, asked, prepared.prompt_tokens)
    if options.trace and most * asked.n > TRACED_TOKENS:
        raise invalid(
            "reweigh.trace",
            f"reweigh.trace: {asked.n} answers of {most:,} tokens are too long; this server traces {TRACED_TOKENS:,} "
            "tokens of a request",
        )
    return [
        Row(
            index=index,
            prepared=prepared,
            session=session,
            decoder=name,
            send=send,
            table=table,
            table_session=table_session,
            sampling=sampling,
            beta=beta,
            seed=None if asked.seed is None else (asked.seed + index) % 2**63,
            most=most,
            stops=asked.stops,
            logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
            evidence=options.evidence,
            trace=options.trace,
        )
        for index, beta in enumerate(betas)
    ]


def _decoder(served: Served, asked: ChatRequest) -> str:
    """The decoder of a request; the base model by default if ReWEIGH is not available."""
    options = asked.options
    chosen = (options.beta, options.layer, options.table)
    if (
        served.reason is not None
        and "decoder" not in options.model_fields_set
        and chosen == (None, None, None)
    ):
        return "base"
    if options.decoder not in DECODERS:
        offered = [one["name"] for one in served.decoders()]
        raise invalid(
            "reweigh.decoder",
            f"no decoder is called {shortened(options.decoder)!r}{did_you_mean(options.decoder, offered)} "
            f"(this server offers {', '.join(sorted(offered))})",
        )
    return options.decoder


def _table(served: Served, asked: ChatRequest) -> str | None:
    """The name of a request's table; ``None`` if the server has none."""
    name, known = asked.options.table, served.table_names
    if not known:
        if name is not None:
            served.reweigh()  # refuses with the reason
        return None
    name = DEFAULT if name is None else name
    if name not in known:
        raise invalid(
            "reweigh.table" if asked.vllm_xargs is None else "vllm_xargs.reweigh_table",
            f"no table is called {shortened(name)!r}{did_you_mean(name, known)} "
            f"(this server has {', '.join(known)})",
            code="unknown_table",
        )
    return name


def _betas(session: Session, asked: ChatRequest, name: str) -> list[float]:
    """The beta of each choice."""
    given = asked.options.beta
    if name in UNEDITED or not isinstance(session, ReweighSession):
        if given is not None:
            raise invalid("reweigh.beta", f"reweigh.beta belongs to the decoder reweigh, not to {name}")
        return [0.0] * asked.n
    given = session.beta if given is None else given
    return [check_beta(beta) for beta in (given if isinstance(given, list) else [given] * asked.n)]


def check_prompt(served: Served, bounds: Bounds, prompt: int) -> None:
    """Refuse a prompt that is longer than the server or the model takes."""
    if prompt > bounds.prompt_tokens or (served.context is not None and prompt >= served.context):
        most = min(bounds.prompt_tokens, (served.context or prompt + 1) - 1)
        told = f"the prompt has {prompt:,} tokens; this server takes {most:,}"
        raise invalid("messages", told, code="context_length_exceeded")


def _answer_length(served: Served, bounds: Bounds, asked: ChatRequest, prompt: int) -> int:
    """Tokens the answer may have."""
    room = bounds.new_tokens if served.context is None else min(bounds.new_tokens, served.context - prompt)
    given = asked.max_completion_tokens or asked.max_tokens
    if given is None:
        return min(DEFAULT_TOKENS, room)
    if given > room:
        raise invalid(
            "max_completion_tokens" if asked.max_completion_tokens else "max_tokens",
            f"max_tokens is {given:,}; after a prompt of {prompt:,} tokens this server writes at most {room:,}",
            code="context_length_exceeded" if room < bounds.new_tokens else "invalid_value",
        )
    return given
