"""Which versions computed a result; part of every record."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from reweigh import __version__


def versions() -> dict[str, str]:
    """This package and what its numbers depend on."""
    found = {"reweigh": __version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
