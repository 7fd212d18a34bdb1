"""A model behind an HTTP address: one call, paced, retried and bounded, whatever the route.

Temporary failures (429, 5xx, time-outs, dropped connections, unreadable bodies) are retried with growing waits, and
Retry-After is honored; permanent ones (a wrong key, an unknown model, an exhausted quota) are raised at once. A reply
is bounded in time and size. The key comes from the environment; neither it nor the credentials of an address appear in a
message, record, reply or cache file, even if the server repeats them.
"""

from __future__ import annotations

import base64
import email.utils
import json
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from reweigh.benchmarks.judge.protocol import JudgeError
from reweigh.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "https://api.openai.com/v1"
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
LASTING_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
LONGEST_WAIT = 60.0
"""Bound of the growing wait between attempts, in seconds."""
PATIENCE = 600.0
"""Longest Retry-After that is waited for, in seconds."""
LARGEST_REPLY = 1 << 22
"""Maximum bytes of a reply."""
SHORTEST_SECRET = 4
"""Shorter secrets are not redacted, because they would also match parts of ordinary words."""

T = TypeVar("T")


class PassingError(Exception):
    """A failure worth another attempt; ``after`` is the wait that the server asked for."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


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
        first_wait: Seconds to wait after the first failure; they double from then on.
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
    ) -> None:
        if attempts < 1:
            raise InputError(f"attempts must be at least 1, not {attempts}")
        _require_positive(timeout=timeout, per_minute=per_minute)
        self.base_url, login, query = split_address(base_url)
        self.model = model
        self.role = role
        self._attempts = attempts
        self._timeout = timeout
        self._first_wait = first_wait
        self._closed = threading.Event()
        self._pace = Pace(per_minute, sleep=self._closed.wait)
        key = _key(key_variable, self.base_url)
        secrets = [key, *(value for _, value in query)]
        if login is not None:
            secrets += [login[1], base64.b64encode(":".join(login).encode()).decode()]
        self._redact = Redactor(secrets)
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError(f"the {role}", "eval", "httpx") from error
        self._client = httpx.Client(
            timeout=timeout,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            auth=login,
            params=tuple(query),
        )

    def call(self, route: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """Post a body and return what ``read`` makes of the reply's JSON.

        ``read`` raises :class:`PassingError` for a reply worth another attempt.
        """
        last = ""
        for attempt in range(self._attempts):
            self._pace.wait()
            try:
                return read(self._try(route, body))
            except PassingError as error:
                last = str(error)
                self._pause(attempt, error.after)
        raise JudgeError(
            f"the {self.role} at {self.base_url} did not reply in {self._attempts} attempts; last error: {last}",
            hint="check that the server is running, then run the same command again: finished verdicts are kept",
        )

    def close(self) -> None:
        """End all waiting and close the connections."""
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
        if asked is not None and asked > PATIENCE:
            raise JudgeError(
                f"the {self.role} at {self.base_url} asks to wait {asked:.0f} s, more than {PATIENCE:.0f} s",
                hint="run the same command again later: finished verdicts are kept",
            )
        wait = backoff(attempt, first=self._first_wait)
        # A small random part spreads the return of threads that were refused together.
        self._closed.wait(wait if asked is None else asked + min(wait, 1.0) * 0.1)

    def _try(self, route: str, body: Mapping[str, Any]) -> Any:
        import httpx

        try:
            with self._client.stream("POST", f"{self.base_url}/{route}", json=body) as answer:
                content = self._receive(answer)
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
        if answer.status_code != 200:
            raise self._refusal(answer, content)
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            text = self._redact(content.decode("utf-8", "replace"))
            raise PassingError(f"its answer is not JSON: {text[:200]!r}") from error

    def _receive(self, answer: httpx.Response) -> bytes:
        """Return the body of a reply, bounded in time and size."""
        until = time.monotonic() + self._timeout
        content = bytearray()
        for part in answer.iter_bytes():
            content += part
            if len(content) > LARGEST_REPLY:
                raise JudgeError(
                    f"the {self.role} at {self.base_url} sends more than {LARGEST_REPLY:,} bytes for one answer",
                    hint="check the address: this cannot be a judge's reply",
                )
            if time.monotonic() > until:
                raise PassingError("it did not answer in time")
        return bytes(content)

    def _reason(self, error: Exception) -> str:
        return self._redact(str(error) or type(error).__name__)

    def _excerpt(self, found: Any) -> str:
        """Return the start of a reply, for a message."""
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        return repr(self._redact(text)[:200])

    def _refusal(self, answer: httpx.Response, content: bytes) -> Exception:
        code, message = _complaint(content)
        message = self._redact(message)[:300].strip()
        status = answer.status_code
        said = f"HTTP {status}" + (f" ({message})" if message else "")
        if status in PASSING and code not in LASTING_CODES:
            return PassingError(said, retry_after(answer.headers.get("retry-after")))
        return JudgeError(
            f"the {self.role} at {self.base_url} refused the request: {said}",
            hint=self._hint(status, message),
        )

    def _hint(self, status: int, message: str) -> str:
        """Say what to do about a permanent refusal."""
        return self.hints.get(
            status, "the server rejects the request itself; check the model name and base URL"
        )


def _complaint(content: bytes) -> tuple[str, str]:
    """Return the error code and message of a refusal, as far as the server gives them.

    It is either ``{"error": {"code", "message"}}`` or FastAPI's ``{"detail": text or list of {"loc", "msg"}}``.
    """
    try:
        said = json.loads(content)
        if "detail" not in said:
            return str(said["error"].get("code") or ""), str(said["error"].get("message") or "")
        detail = said["detail"]
        if not isinstance(detail, str):
            detail = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in detail)
        return "", detail
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", content.decode("utf-8", "replace")


def _require_positive(**values: float | None) -> None:
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < math.inf):
            raise InputError(f"the judge's {name} must be a positive number, not {value!r}")


def _key(variable: str | None, url: str) -> str:
    """Return the key in an environment variable; empty where none is needed."""
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"the key in {variable} has characters that are not allowed in an HTTP header")
    if not key and url.startswith(DEFAULT_URL):
        raise InputError(
            f"the environment variable {variable} has no key for the judge at {url}",
            hint=f"export {variable}=..., or name a server that needs no key with --judge-option url=URL",
        )
    return key


def split_address(text: str) -> tuple[str, tuple[str, str] | None, list[tuple[str, str]]]:
    """Split a base URL into the part that may be printed and its secrets: the login and the query of every request.

    An error message does not repeat the URL.
    """
    try:
        parts = urlsplit(text.strip())
        host, port, user = parts.hostname, parts.port, parts.username
    except ValueError as error:
        raise InputError(
            "the judge's address is not a URL", hint="give one such as http://host/v1"
        ) from error
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(
            "the judge's address does not start with http:// or https:// and a host",
            hint="give one such as http://localhost:8000/v1",
        )
    place = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    url = urlunsplit((parts.scheme, place, parts.path, "", "")).rstrip("/")
    login = None if user is None else (unquote(user), unquote(parts.password or ""))
    return url, login, parse_qsl(parts.query, keep_blank_values=True)


class Redactor:
    """Removes secrets from texts: as they are, in URLs and in JSON."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= SHORTEST_SECRET
            for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
        }
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, "[redacted]")
        return text


class Pace:
    """Spaces the requests of all threads.

    Args:
        per_minute: Maximum number of requests per minute; None for no limit.
        clock: Monotonic seconds.
        sleep: Waits for seconds; returns true if the judge was closed meanwhile.
    """

    def __init__(
        self,
        per_minute: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], bool],
    ) -> None:
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._sleep = sleep
        self._next = clock()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when this thread may start its request."""
        while True:
            with self._lock:
                now = self._clock()
                if now >= self._next:
                    self._next = now + self._interval
                    return
                pause = self._next - now
            if self._sleep(pause):
                raise JudgeError("the judge was closed while a question was waiting")


def backoff(attempt: int, *, first: float, chance: Callable[[], float] = random.random) -> float:
    """Return the seconds to wait after failure number ``attempt`` (from 0): doubling, bounded, half of it random.

    The random half keeps threads that failed together from retrying together.
    """
    wait = min(LONGEST_WAIT, first * 2.0 ** min(attempt, 60))
    return wait * (0.5 + 0.5 * chance())


def retry_after(header: str | None, *, now: Callable[[], float] = time.time) -> float | None:
    """Parse a Retry-After header, seconds or a date, into seconds; None if it is absent or invalid."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(header)
        except (TypeError, ValueError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.fromtimestamp(now(), UTC)).total_seconds()
    # float() accepts NaN and infinity, which are not waiting times.
    return max(0.0, seconds) if seconds < float("inf") else None
