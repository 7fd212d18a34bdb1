"""A judge at any OpenAI-compatible chat endpoint, over httpx.

Passing troubles (429, 5xx, time-outs, cut connections, bodies that are no reply) are retried with growing
waits, Retry-After being honoured; lasting ones (a wrong key, an unknown model, a spent quota) are raised at
once. The key comes from the environment; neither it nor the credentials of an address appear in a message, record, reply
or cache file, even if the server repeats them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reweigh.benchmarks.judge.pace import Pace, backoff, retry_after
from reweigh.benchmarks.judge.protocol import JudgeError, Request
from reweigh.benchmarks.judge.secrets import Address, Redactor
from reweigh.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import httpx

DEFAULT_MODEL = "gpt-4.1-mini-2025-04-14"
DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
LASTING_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})


class PassingError(Exception):
    """A failure worth another try; ``after`` holds the wait that the server asked for."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class ChatEndpoint:
    """Asks a model over HTTP; safe to share between threads, closed by ``with`` or ``close``.

    Args:
        model: Name of the judge model.
        base_url: Address up to and including the version, e.g. ``http://localhost:8000/v1``.
        key_variable: Environment variable that holds the key.
        per_minute: Largest number of requests in a minute.
        attempts: Tries for one question before giving up.
        timeout: Seconds for one try.
        first_wait: Wait after the first failure; it doubles from then on.
        longest_wait: Bound of the growing wait.
        patience: Longest Retry-After that is waited for.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        base_url: str = DEFAULT_URL,
        key_variable: str = DEFAULT_KEY_VARIABLE,
        per_minute: float | None = None,
        attempts: int = 6,
        timeout: float = 60.0,
        first_wait: float = 1.0,
        longest_wait: float = 60.0,
        patience: float = 600.0,
    ) -> None:
        if attempts < 1:
            raise InputError(f"{attempts} attempts: at least one is needed")
        address = Address.parse(base_url)
        self.model = model
        self.base_url = address.url
        self._attempts = attempts
        self._waits = (first_wait, longest_wait)
        self._patience = patience
        self._closed = threading.Event()
        self._pace = Pace(per_minute, sleep=self._closed.wait)
        headers = _headers(key_variable, self.base_url)
        self._redact = Redactor(
            [*address.secrets(), *(value.removeprefix("Bearer ") for value in headers.values())]
        )
        self._client = _client(timeout, headers, address)

    def describe(self) -> dict[str, Any]:
        """Name model and address, without credentials."""
        return {"model": self.model, "base_url": self.base_url}

    def ask(self, request: Request) -> str:
        """Give the reply's text; a refusal without text is an empty reply."""
        last = ""
        for attempt in range(self._attempts):
            self._pace.wait()
            try:
                return self._try(request)
            except PassingError as error:
                last = str(error)
                self._pause(attempt, error.after)
        raise JudgeError(
            f"the judge at {self.base_url} gave no reply in {self._attempts} attempts; at last: {last}",
            hint="run the same command again later: finished verdicts are kept",
        )

    def close(self) -> None:
        """End all waiting and drop the connections."""
        self._closed.set()
        self._client.close()

    def __enter__(self) -> ChatEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pause(self, attempt: int, asked: float | None) -> None:
        if self._closed.is_set():
            raise JudgeError("the judge was closed while a question was waiting")
        if attempt + 1 == self._attempts:
            return
        if asked is not None and asked > self._patience:
            raise JudgeError(
                f"the judge at {self.base_url} asks to wait {asked:.0f} s, more than {self._patience:.0f} s",
                hint="run the same command again later: finished verdicts are kept",
            )
        first, longest = self._waits
        wait = backoff(attempt, first=first, longest=longest)
        if asked is None:
            self._closed.wait(wait)
        else:
            # The server named a time: everybody holds, and the small random part spreads the return.
            self._pace.hold(asked)
            self._closed.wait(asked + min(wait, 1.0) * 0.1)

    def _try(self, request: Request) -> str:
        import httpx

        try:
            answer = self._client.post(f"{self.base_url}/chat/completions", json=self._body(request))
        except httpx.TimeoutException as error:
            raise PassingError("it did not answer in time") from error
        except httpx.TransportError as error:
            raise PassingError(f"the connection failed ({self._told(error)})") from error
        except httpx.HTTPError as error:  # a body that is not compressed as it says, say
            raise PassingError(f"its answer cannot be read ({self._told(error)})") from error
        except RuntimeError as error:
            # The client says so in this way when another thread has closed it.
            raise JudgeError(
                f"the judge was closed while a question was under way ({self._told(error)})"
            ) from error
        if answer.status_code != 200:
            raise self._refusal(answer)
        return self._redact(self._content(answer))

    def _told(self, error: Exception) -> str:
        return self._redact(str(error) or type(error).__name__)

    def _content(self, answer: httpx.Response) -> str:
        try:
            content = answer.json()["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            said = self._redact(answer.text)[:200]
            raise PassingError(f"its answer is no chat completion: {said!r}") from error
        if content is None:
            return ""
        if not isinstance(content, str):
            raise PassingError(f"its answer holds a {type(content).__name__} for text")
        return content

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [dict(message) for message in request.messages],
            "temperature": request.temperature,
        }
        return body | ({"max_tokens": request.max_tokens} if request.max_tokens is not None else {})

    def _refusal(self, answer: httpx.Response) -> Exception:
        code, message = _complaint(answer)
        message = self._redact(message)[:300].strip()
        said = f"HTTP {answer.status_code}" + (f" ({message})" if message else "")
        if answer.status_code in PASSING and code not in LASTING_CODES:
            return PassingError(said, retry_after(answer.headers.get("retry-after")))
        hints = {
            401: "check the key in the environment variable",
            403: "this key may not use that model",
            404: f"check the base URL and the model name {self.model!r}",
            429: "the account has no quota left",
        }
        return JudgeError(
            f"the judge at {self.base_url} refuses the request: {said}",
            hint=hints.get(
                answer.status_code, "the request itself is not accepted; check model and base URL"
            ),
        )


def _headers(variable: str, url: str) -> dict[str, str]:
    key = os.environ.get(variable, "").strip()
    if key:
        if not (key.isascii() and key.isprintable()):
            raise InputError(f"the key in {variable} has characters that no HTTP header can carry")
        return {"Authorization": f"Bearer {key}"}
    if url.startswith(DEFAULT_URL):
        raise InputError(
            f"the environment variable {variable} holds no key for the judge at {url}",
            hint=f"export {variable}=..., or name a server that needs none with --judge-url",
        )
    return {}


def _client(timeout: float, headers: Mapping[str, str], address: Address) -> httpx.Client:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError("the judge", "eval", "httpx") from error
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
    return httpx.Client(
        timeout=timeout,
        headers=dict(headers),
        limits=limits,
        auth=address.login,
        params=list(address.query),
    )


def _complaint(answer: httpx.Response) -> tuple[str, str]:
    """The error code and message of a refusal, as far as the server tells them."""
    try:
        error = answer.json()["error"]
        return str(error.get("code") or ""), str(error.get("message") or "")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", answer.text
