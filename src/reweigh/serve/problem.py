"""A refused request: its status and an error body in OpenAI's format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = replace_surrogates(message)
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The error body."""
        kind = KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def problem_of(error: Exception, hidden: Iterable[str] = ()) -> Problem:
    """What a client learns about an error: our own refusals in full, anything else only that it happened.

    ``hidden`` are texts that must not leave the server: where the model and its table lie.
    """
    if isinstance(error, Problem):
        return error
    if not isinstance(error, ReweighError) or not isinstance(error, InputError | UnsupportedError):
        return Problem(500, "the server failed on this request; its log says more", code="internal_error")
    message = error.message if error.hint is None else f"{error.message} ({error.hint})"
    for text in sorted(filter(None, hidden), key=len, reverse=True):
        message = message.replace(text, "the model's files")
    return Problem(400, message, code="refused")
