"""A model behind an HTTP address: one call, retried and bounded, whatever the route.

Temporary failures (429, 5xx, time-outs, dropped connections, unreadable bodies) are retried with growing waits, and
Retry-After is honoured; permanent ones (a wrong key, an unknown model, an exhausted quota) are raised at once. A reply
is bounded in time and size. The key comes from the environment; neither it nor the credentials of an address appear in a
message, record, reply or cache file, even if the server repeats them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from reweigh.benchmarks.judge.pace import Pace, backoff, retry_after
from reweigh.benchmarks.judge.protocol import JudgeError
from reweigh.benchmarks.judge.secrets import Address, Redactor
from reweigh.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "https://api.openai.com/v1"
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
LASTING_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
LARGEST_REPLY = 1 << 22
"""Maximum bytes of a reply."""

T = TypeVar("T")


class PassingError(Exception):
    """A failure worth another try; ``after`` holds the wait that the server asked for."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: status, headers (lower-case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, whatever its bytes."""
        return self.body.decode("utf-8", "replace")


class Endpoint:
    """Calls a model over HTTP; safe to share between threads, closed by ``with`` or ``close``.

    Args:
        model: Name of the model.
        base_url: Address up to and including the version, e.g. ``http://localhost:8000/v1``.
        key_variable: Environment variable that holds the key; none is sent without one.
        role: What messages call it.
        per_minute: Maximum number of requests per minute.
        attempts: Attempts per question before giving up.
        timeout: Seconds per attempt.
        first_wait: Wait after the first failure; it doubles from then on.
        longest_wait: Bound of the growing wait.
        patience: Longest Retry-After that is waited for.
    """

    hints: ClassVar[Mapping[int, str]] = {
        401: "check the key in the environment variable",
        403: "this key may not use that model",
        429: "the account has no quota left",
    }
    """What to do about a permanent failure, by status."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        key_variable: str | None = None,
        role: str = "judge",
        per_minute: float | None = None,
        attempts: int = 6,
        timeout: float = 60.0,
        first_wait: float = 1.0,
        longest_wait: float = 60.0,
        patience: float = 600.0,
    ) -> None:
        if attempts < 1:
            raise InputError(f"{attempts} attempts: at least one is needed")
        if not timeout > 0:
            raise InputError(f"{timeout:g} seconds for one try: more than 0 are needed")
        address = Address.parse(base_url)
        self.model = model
        self.base_url = address.url
        self.role = role
        self._attempts = attempts
        self._timeout = timeout
        self._waits = (first_wait, longest_wait)
        self._patience = patience
        self._closed = threading.Event()
        self._pace = Pace(per_minute, sleep=self._closed.wait)
        headers = _headers(key_variable, self.base_url)
        self._redact = Redactor(
            [*address.secrets(), *(value.removeprefix("Bearer ") for value in headers.values())]
        )
        self._client = _client(role, timeout, headers, address)

    def call(self, route: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """Post a body and return what ``read`` makes of the reply's JSON.

        ``read`` raises :class:`PassingError` for a reply worth another attempt.
        """
        last = ""
        for attempt in range(self._attempts):
            self._pace.wait()
            try:
                return self._try(route, body, read)
            except PassingError as error:
                last = str(error)
                self._pause(attempt, error.after)
        raise JudgeError(
            f"the {self.role} at {self.base_url} did not reply in {self._attempts} attempts; last error: {last}",
            hint="check that the server is running, then run the same command again: finished verdicts are kept",
        )

    def close(self) -> None:
        """End all waiting and drop the connections."""
        self._closed.set()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pause(self, attempt: int, asked: float | None) -> None:
        if self._closed.is_set():
            raise JudgeError(f"the {self.role} was closed while a question was waiting")
        if attempt + 1 == self._attempts:
            return
        if asked is not None and asked > self._patience:
            raise JudgeError(
                f"the {self.role} at {self.base_url} asks to wait {asked:.0f} s, more than {self._patience:.0f} s",
                hint="run the same command again later: finished verdicts are kept",
            )
        first, longest = self._waits
        wait = backoff(attempt, first=first, longest=longest)
        if asked is None:
            self._closed.wait(wait)
        else:
            # The server gave a time: all threads wait, and a small random part spreads their return.
            self._pace.hold(asked)
            self._closed.wait(asked + min(wait, 1.0) * 0.1)

    def _try(self, route: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        import httpx

        try:
            reply = self._send(route, body)
        except httpx.TimeoutException as error:
            raise PassingError("it did not answer in time") from error
        except httpx.TransportError as error:
            raise PassingError(f"the connection failed ({self._reason(error)})") from error
        except httpx.HTTPError as error:  # e.g. a body that is not compressed as declared
            raise PassingError(f"its answer cannot be read ({self._reason(error)})") from error
        except RuntimeError as error:
            # httpx raises this if another thread has closed the client.
            raise JudgeError(
                f"the {self.role} was closed while a question was in progress ({self._reason(error)})"
            ) from error
        if reply.status != 200:
            raise self._refusal(reply)
        try:
            found = json.loads(reply.body)
        except (ValueError, RecursionError) as error:
            raise PassingError(f"its answer is not JSON: {self._redact(reply.text)[:200]!r}") from error
        return read(found)

    def _send(self, route: str, body: Mapping[str, Any]) -> Reply:
        """One request, and its reply as far as time and size allow."""
        until = time.monotonic() + self._timeout
        kept = bytearray()
        with self._client.stream("POST", f"{self.base_url}/{route}", json=body) as answer:
            for part in answer.iter_bytes():
                kept += part
                if len(kept) > LARGEST_REPLY:
                    raise JudgeError(
                        f"the {self.role} at {self.base_url} sends more than {LARGEST_REPLY:,} bytes for one answer",
                        hint="check the address: this is not a reply",
                    )
                if time.monotonic() > until:
                    raise PassingError("it did not answer in time")
            return Reply(answer.status_code, dict(answer.headers), bytes(kept))

    def _reason(self, error: Exception) -> str:
        return self._redact(str(error) or type(error).__name__)

    def _excerpt(self, found: Any) -> str:
        """The start of a reply for a message."""
        return repr(self._redact(json.dumps(found, ensure_ascii=False))[:200])

    def _refusal(self, reply: Reply) -> Exception:
        code, message = _complaint(reply)
        message = self._redact(message)[:300].strip()
        said = f"HTTP {reply.status}" + (f" ({message})" if message else "")
        if reply.status in PASSING and code not in LASTING_CODES:
            return PassingError(said, retry_after(reply.headers.get("retry-after")))
        return JudgeError(
            f"the {self.role} at {self.base_url} refused the request: {said}",
            hint=self._hint(reply.status, message),
        )

    def _hint(self, status: int, message: str) -> str:
        """What to do about a permanent refusal."""
        return self.hints.get(status, "the request itself is not accepted; check model and base URL")


def _headers(variable: str | None, url: str) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if key:
        if not (key.isascii() and key.isprintable()):
            raise InputError(f"the key in {variable} has characters that no HTTP header can carry")
        return {"Authorization": f"Bearer {key}"}
    if url.startswith(DEFAULT_URL):
        raise InputError(
            f"the environment variable {variable} has no key for the judge at {url}",
            hint=f"export {variable}=..., or give a server that needs none with --judge-option url=URL",
        )
    return {}


def _client(role: str, timeout: float, headers: Mapping[str, str], address: Address) -> httpx.Client:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError(f"the {role}", "eval", "httpx") from error
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
    return httpx.Client(
        timeout=timeout,
        headers=dict(headers),
        limits=limits,
        auth=address.login,
        params=list(address.query),
    )


def _complaint(reply: Reply) -> tuple[str, str]:
    """The error code and message of a refusal, as far as the server gives them.

    Either ``{"error": {"code", "message"}}`` or FastAPI's ``{"detail": text or list of {"loc", "msg"}}``.
    """
    try:
        said = json.loads(reply.body)
        if "detail" in said:
            return "", _detail(said["detail"])
        error = said["error"]
        return str(error.get("code") or ""), str(error.get("message") or "")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", reply.text


def _detail(said: Any) -> str:
    if isinstance(said, str):
        return said
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in said)
