"""A judge's secrets: its key, and the credentials in its URL."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from reweigh.errors import InputError

SHORTEST = 4
"""Minimum length of a secret; a shorter one would be struck out of ordinary words."""


@dataclass(frozen=True, slots=True)
class Address:
    """A base URL, separated from its secrets.

    Attributes:
        url: What may be printed: scheme, host, port and path.
        login: User and password, if it holds any.
        query: Its query, which every request carries along.
    """

    url: str
    login: tuple[str, str] | None
    query: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Address:
        """Take a base URL apart; a message about a wrong one does not repeat it."""
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
        host_name = f"[{host}]" if ":" in host else host
        clean = urlunsplit(
            (parts.scheme, host_name if port is None else f"{host_name}:{port}", parts.path, "", "")
        )
        login = None if user is None else (unquote(user), unquote(parts.password or ""))
        return cls(clean.rstrip("/"), login, tuple(parse_qsl(parts.query, keep_blank_values=True)))

    def secrets(self) -> list[str]:
        """Parts of the address that must stay secret."""
        found = [value for _, value in self.query]
        if self.login is not None:
            found += [self.login[1], base64.b64encode(":".join(self.login).encode()).decode()]
        return found


class Redactor:
    """Removes secrets from texts, however they are written."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= SHORTEST
            for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
        }
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them."""
        for form in self._forms:
            text = text.replace(form, "[redacted]")
        return text
