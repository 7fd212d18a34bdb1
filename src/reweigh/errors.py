"""Every error that the package raises on purpose.

    ReweighError
    ├── InputError            a value, file or image given by the caller is wrong
    │   ├── ImageError        an image cannot be read or is out of bounds
    │   └── UnknownNameError  a registry has no such name; the nearest are suggested
    ├── ArtifactError         a file of this package is missing, truncated, altered or of another schema
    ├── MismatchError         a table (or run) belongs to another model, tokenizer, layer or dtype
    ├── UnsupportedError      a model, family or way of decoding is not supported, with the reason
    ├── CalibrationError      calibration cannot produce a usable table
    ├── NumericsError         NaN or another impossible number where a finite one is required
    └── MissingExtraError     an optional dependency is not installed

A message says what was wrong and what was expected; ``hint`` says what to do next.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable
from pathlib import Path


class ReweighError(Exception):
    """Base class. ``hint`` is appended to the message on its own line.

    Examples:
        >>> import reweigh
        >>> try:
        ...     reweigh.ReferenceTable.from_pretrained("no-such-folder/anywhere/at-all")
        ... except reweigh.ReweighError as error:
        ...     print(type(error).__name__)
        ArtifactError
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class InputError(ReweighError, ValueError):
    """The caller gave a value that cannot be used."""


class ImageError(InputError):
    """An image is unreadable, truncated or beyond the size limits."""


class UnknownNameError(InputError, KeyError):
    """A name that is not in the registry."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        super().__init__(f"unknown {kind} {name!r}", hint=f"{hint}known: {', '.join(names) or 'none'}")


def require_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first of ``names`` that is not among ``known``."""
    known = list(known)
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's message, for use inside ours; the error's type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class ArtifactError(ReweighError):
    """A file written by this package cannot be trusted as it is."""


class MismatchError(ReweighError):
    """Two artifacts that must agree do not; both sides are named."""


class UnsupportedError(ReweighError):
    """The model or the way of decoding is not supported; the message gives the reason."""


class CalibrationError(ReweighError):
    """The calibration data do not produce a usable table."""


class NumericsError(ReweighError):
    """A number that must be finite is not."""


def source_folder() -> str:
    """Return the folder that reweigh was installed from; "." where that is not known."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    root = Path(__file__).parents[2]
    if (root / "pyproject.toml").is_file():
        return str(root)
    try:
        page = distribution("reweigh").read_text("direct_url.json")
        address = urlsplit(json.loads(page or "{}").get("url", ""))
    except (PackageNotFoundError, ValueError):
        return "."
    return url2pathname(address.path) if address.scheme == "file" else "."


class MissingExtraError(ReweighError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str, missing: str) -> None:
        super().__init__(
            f"{feature} needs {missing}, which is not installed",
            hint=f"pip install {shlex.quote(f'{source_folder()}[{extra}]')}",
        )
