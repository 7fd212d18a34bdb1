"""Refused requests: status and error body in OpenAI's format, and the deadline that refuses late work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import JSONResponse

from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.text import replace_surrogates

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class Problem(Exception):
    """Why a request was refused."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = replace_surrogates(message)
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the error body."""
        kind = KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """Return the whole response."""
        return JSONResponse(self.body(), status_code=self.status, headers=self.headers)


def invalid(param: str | None, message: str, *, code: str = "invalid_value", status: int = 400) -> Problem:
    """Return a problem with one field of a request."""
    return Problem(status, message, param=param, code=code)


def stopping() -> Problem:
    """Return what a client learns when the server ends."""
    return Problem(503, "the server is stopping", code="stopping")


def problem_of(error: BaseException, hidden: Iterable[str] = (), *, param: str | None = None) -> Problem:
    """Return what a client learns about an error: our own refusals in full, of anything else only that it happened.

    Args:
        hidden: Paths that must not leave the server: those of the model and its tables.
        param: The field that the error is about.
    """
    if isinstance(error, Problem):
        return error
    if not isinstance(error, ReweighError) or not isinstance(error, InputError | UnsupportedError):
        return Problem(500, "the server failed to answer this request; see its log", code="internal_error")
    message = error.message if error.hint is None else f"{error.message} ({error.hint})"
    for text in sorted(filter(None, hidden), key=len, reverse=True):
        message = message.replace(text, "the model's files")
    return invalid(param, message, code="refused")


class Deadline:
    """The time of one request, from its arrival to its last token."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left; 0 when the time is up."""
        return max(0.0, self._ends - time.monotonic())

    def check(self) -> None:
        """Refuse to continue once the time is up."""
        if not self.left():
            raise self.over()

    def over(self) -> Problem:
        """Return what the client is told."""
        return Problem(504, "the answer took longer than this server allows", code="timeout")
