"""An LLM judge: any server with OpenAI's chat API, asked through OpenAI's client, its verdicts cached on disk.

The client retries temporary failures (429, 5xx, time-outs, dropped connections) with growing waits and honors
Retry-After; replies that are not chat completions are asked for again here. A reply is bounded in time and size. The key
comes from the environment; neither it nor what else an address holds appears in a message, record, reply or cache file,
even if the server repeats it.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from reweigh.errors import ArtifactError, InputError, MissingExtraError, ReweighError
from reweigh.files.artifacts import read_json, sha256_json, write_json
from reweigh.lab.tasks.data import data_root
from reweigh.text import replace_surrogates

DEFAULT_MODEL = "gpt-4.1-mini-2025-04-14"
DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
ATTEMPTS = 6
LARGEST_REPLY = 1 << 22
"""Maximum bytes of a reply."""

T = TypeVar("T")


class JudgeError(ReweighError):
    """The judge did not reply, and asking again would not help."""


class _UnreadableError(Exception):
    """A reply worth asking for again."""


@dataclass(frozen=True, slots=True)
class Request:
    """A user message for a judge; ``sample`` distinguishes repeated draws of the same question."""

    text: str
    temperature: float = 0.0
    max_tokens: int | None = None
    sample: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", replace_surrogates(self.text))


class Judge(Protocol):
    """Answers a request with text; one that holds connections also has ``close``."""

    def ask(self, request: Request) -> str:
        """Return the reply, or raise :class:`JudgeError`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Name model and address, without any secret, for records and cache keys."""
        ...


class ChatJudge:
    """Asks a model for a chat completion; safe to share between threads, closed by ``with`` or ``close``.

    Args:
        model: Name of the model.
        url: Address up to and including the version, e.g. ``http://localhost:8000/v1``; a query is sent with every request.
        key_variable: Environment variable that holds the key; none is sent if it is empty.
        per_minute: Maximum number of requests per minute.
        timeout: Seconds per attempt.
        attempts: Attempts per question before giving up.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        url: str = DEFAULT_URL,
        key_variable: str = DEFAULT_KEY_VARIABLE,
        per_minute: float | None = None,
        timeout: float = 60.0,
        attempts: int = ATTEMPTS,
    ) -> None:
        for name, value in (("timeout", timeout), ("per_minute", per_minute), ("attempts", attempts)):
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"the judge's {name} must be a positive number, not {value!r}")
        try:
            import openai
        except ImportError as error:
            raise MissingExtraError("the judge", "eval", "openai") from error
        self.model = model
        self.url, query = _split_address(url)
        key = _key(key_variable, self.url)
        self._redact = _redactor([key, *query.values()])
        self._timeout, self._attempts = timeout, attempts
        self._pace = _Pace(per_minute)
        self._client = openai.OpenAI(
            api_key=key or "none",
            base_url=self.url,
            timeout=timeout,
            max_retries=attempts - 1,
            default_query=query,
        )
        self._headers = None if key else {"Authorization": openai.Omit()}

    def describe(self) -> dict[str, Any]:
        return {"model": self.model, "base_url": self.url}

    def ask(self, request: Request) -> str:
        """Return the reply's text; a refusal without text is an empty reply."""
        reason = ""
        for _ in range(self._attempts):
            self._pace.wait()
            try:
                return self._redact(_content(self._receive(request)))
            except _UnreadableError as error:
                reason = str(error)
        raise JudgeError(
            f"the judge at {self.url} did not reply in {self._attempts} attempts; "
            f"last error: {self._redact(reason)[:300]}",
            hint="check that the server is running, then run the same command again: finished verdicts are kept",
        )

    def close(self) -> None:
        """End all waiting and close the connections."""
        self._pace.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, request: Request) -> bytes:
        """Return the body of the reply to one request, bounded in time and size."""
        import openai

        try:
            with self._client.chat.completions.with_streaming_response.create(
                model=self.model,
                messages=[{"role": "user", "content": request.text}],
                temperature=request.temperature,
                max_tokens=openai.omit if request.max_tokens is None else request.max_tokens,
                extra_headers=self._headers,
            ) as answer:
                return b"".join(self._blocks(answer))
        except openai.APIStatusError as error:
            message = error.body.get("message") if isinstance(error.body, dict) else None
            said = self._redact(str(message or error.response.text))[:300].strip()
            raise JudgeError(
                f"the judge at {self.url} refused the request: HTTP {error.status_code}: {said}",
                hint=_hint(error.status_code, self.model),
            ) from None  # the cause holds the request with its key
        except openai.OpenAIError as error:
            raise JudgeError(
                f"the connection to the judge at {self.url} failed: {self._redact(str(error.__cause__ or error))}",
                hint="check that the server is running, then run the same command again: finished verdicts are kept",
            ) from None
        except RuntimeError as error:  # what a client raises after another thread closed it
            raise JudgeError(f"the judge was closed while a question was in progress ({error})") from None

    def _blocks(self, answer: Any) -> Iterator[bytes]:
        """Yield the blocks of a body as they arrive."""
        until = time.monotonic() + self._timeout
        size = 0
        blocks = answer.iter_bytes()
        while True:
            try:
                block = next(blocks, None)
            except (
                Exception
            ) as error:  # whatever the transport raises for a body that is cut or not as declared
                raise _UnreadableError(str(error) or type(error).__name__) from None
            if block is None:
                return
            size += len(block)
            if size > LARGEST_REPLY:
                raise JudgeError(
                    f"the judge at {self.url} sends more than {LARGEST_REPLY:,} bytes for one answer",
                    hint="check the address: this cannot be a judge's reply",
                )
            if time.monotonic() > until:
                raise _UnreadableError("it did not answer in time")
            yield block


def _content(body: bytes) -> str:
    """Return the text of a chat completion."""
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        shown = body.decode("utf-8", "replace")[:200]
        raise _UnreadableError(f"its answer is not a chat completion: {shown!r}") from error
    if not isinstance(content, str | None):
        raise _UnreadableError(f"its answer has {content!r:.80} instead of text")
    return replace_surrogates(content or "")


def _hint(status: int, model: str) -> str:
    """Say what to do about a refusal."""
    hints = {
        401: "check the key in the environment variable",
        403: "this key may not use that model",
        404: f"check the base URL and the model name {model!r}",
        429: "the account has no quota left, or asks to wait longer; run the same command again later: "
        "finished verdicts are kept",
    }
    if status >= 500:
        return "check the server, then run the same command again: finished verdicts are kept"
    return hints.get(status, "the server rejects the request itself; check the model name and base URL")


def _key(variable: str, url: str) -> str:
    """Return the key in an environment variable; empty where none is needed."""
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"the key in {variable} has characters that are not allowed in an HTTP header")
    if not key and url.startswith(DEFAULT_URL):
        raise InputError(
            f"the environment variable {variable} has no key for the judge at {url}",
            hint=f"export {variable}=..., or name a server that needs no key with --judge-option url=URL",
        )
    return key


def _split_address(text: str) -> tuple[str, dict[str, str]]:
    """Split a base URL into the part that may be printed, and the query; an error message does not repeat it."""
    try:
        parts = urlsplit(text.strip())
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise InputError(
            "the judge's address does not start with http:// or https:// and a host",
            hint="give one such as http://localhost:8000/v1",
        )
    if "@" in parts.netloc:
        raise InputError(
            "the judge's address contains a login", hint="put the server's key into the environment variable"
        )
    url = urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")).rstrip("/")
    return url, dict(parse_qsl(parts.query, keep_blank_values=True))


def _redactor(secrets: Sequence[str]) -> Callable[[str], str]:
    """Return a function that removes secrets from texts: as they are, in URLs and in JSON."""
    long = [secret for secret in secrets if len(secret) > 3]  # shorter ones are parts of ordinary words
    forms = {form for one in long for form in (one, quote(one, safe=""), json.dumps(one)[1:-1])}

    def redact(text: str) -> str:
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, "[redacted]")
        return text

    return redact


class _Pace:
    """Spaces the requests of all threads."""

    def __init__(self, per_minute: float | None) -> None:
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def wait(self) -> None:
        """Return when this thread may start its request."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + self._interval
        if self._closed.wait(start - now):
            raise JudgeError("the judge was closed while a question was waiting")

    def close(self) -> None:
        """End all waiting."""
        self._closed.set()


class CachedJudge:
    """A judge that asks another one only what is not in a folder of verdicts yet, so that a repeated run costs nothing.

    A verdict that cannot be read or answers another question is asked for again. The judge is part of the question, so
    that two judges never share a verdict.
    """

    def __init__(self, judge: Judge, folder: str | Path) -> None:
        self._judge = judge
        self._folder = Path(folder)
        self._in_progress: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """Name the judge behind the cache: the cache itself changes no verdict."""
        return self._judge.describe()

    def close(self) -> None:
        close_judge(self._judge)

    def ask(self, request: Request) -> str:
        """Return the stored verdict, or ask and store the reply."""
        question = {"judge": self._judge.describe(), **asdict(request)}
        key = sha256_json(question)
        path = self._folder / key[:2] / f"{key}.json"
        with self._lock:
            own = self._in_progress.setdefault(key, threading.Lock())
        # Of two equal questions at the same time, the second waits for the first one's verdict.
        with own:
            with suppress(ArtifactError):
                stored = read_json(path)
                reply = stored.get("reply") if isinstance(stored, Mapping) else None
                if isinstance(reply, str) and stored == _verdict(question, reply):
                    return reply
            reply = replace_surrogates(self._judge.ask(request))
            write_json(path, _verdict(question, reply))
            return reply


def _verdict(question: Mapping[str, Any], reply: str) -> dict[str, Any]:
    """Return what is stored of a verdict, with a hash by which an altered one is noticed."""
    return {"question": question, "reply": reply, "sha256": sha256_json([question, reply])}


def close_judge(judge: object) -> None:
    """Close a judge that holds connections; one without ``close`` holds none."""
    if (close := getattr(judge, "close", None)) is not None:
        close()


def ask_all(
    tasks: Sequence[Callable[[], T]], *, concurrency: int, advance: Callable[[], Any] | None = None
) -> list[T]:
    """Run tasks on a few threads and return their results in order.

    The first failure cancels what has not started and is raised; earlier answers are in the cache, so the next
    run resumes from there.
    """
    if type(concurrency) is not int or concurrency < 1:
        raise InputError(f"concurrency must be a whole number of at least 1, not {concurrency!r}")
    answers: dict[int, T] = {}
    # Daemon threads: those of an executor would keep a stopped command alive until the last question times out.
    with ThreadPool(max(1, min(concurrency, len(tasks)))) as pool:
        for index, answer in pool.imap_unordered(lambda one: (one[0], one[1]()), enumerate(tasks)):
            answers[index] = answer
            if advance is not None:
                advance()
    return [answers[index] for index in range(len(tasks))]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """A judge behind an HTTP address whose verdicts are cached on disk.

    Attributes:
        model: The judge model; the paper's by default.
        url: Base URL of the server; by default OpenAI's.
        key: Environment variable that holds the key.
        prompt: File with the judge's prompt, if not the benchmark's own.
        cache: Folder for verdicts; by default one below the data folder.
        rules: How a reply is read: ``strict`` (the paper's, the default) or ``official``.
        concurrency: Questions to ask the judge at once.
        per_minute: Maximum number of questions per minute.
        timeout: Seconds per attempt.
    """

    model: str = DEFAULT_MODEL
    url: str = DEFAULT_URL
    key: str = DEFAULT_KEY_VARIABLE
    prompt: Path | None = None
    cache: Path | None = None
    rules: str | None = None
    concurrency: int = 8
    per_minute: float | None = None
    timeout: float = 60.0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a judged benchmark; the network is used only when the judge is asked something."""
        judge = ChatJudge(
            self.model,
            url=self.url,
            key_variable=self.key,
            per_minute=self.per_minute,
            timeout=self.timeout,
        )
        given = {
            "judge": CachedJudge(judge, self.cache or data_root() / "verdicts"),
            "prompt": self.prompt,
            "concurrency": self.concurrency,
        }
        return given if self.rules is None else given | {"rules": self.rules}
