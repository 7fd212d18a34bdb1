"""What can be said before the model and the server's packages are loaded: the extra, and the address."""

from __future__ import annotations

import ipaddress
import socket

from reweigh.errors import InputError, MissingExtraError


def require_extra() -> None:
    """Say what to install if the extra is missing."""
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtraError("reweigh serve", "serve", package) from error


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Bind an address before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen on {host} port {port} ({error})",
            hint="another program may be using it; --port 0 picks a free one",
        ) from error
