"""Images in object storage and other places with an address (``s3://``, ``gs://``, ``https://`` ...), through fsspec.

The package that speaks to a given store (s3fs, gcsfs ...) is the user's to install; fsspec names it where it is missing.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from reweigh.errors import ImageError, InputError
from reweigh.images import SUFFIXES


def is_address(place: str) -> bool:
    """Whether a place is an address, not a path of this machine."""
    return "://" in place


def list_stored(folder: str) -> list[tuple[str, str]]:
    """Addresses of all images below an address, each with its name relative to it, sorted by name."""
    from fsspec.core import url_to_fs

    try:
        system, root = url_to_fs(folder)
        paths = [str(path) for path in system.find(root)]
    except Exception as error:  # every store has exceptions of its own
        raise InputError(
            f"{folder} cannot be listed ({type(error).__name__}: {error})",
            hint="check the address, and that the package for this kind of storage is installed",
        ) from error
    start = len(root.rstrip("/")) + 1
    images = [path for path in paths if PurePosixPath(path).suffix.lower() in SUFFIXES]
    found = sorted((path[start:], system.unstrip_protocol(path)) for path in images)
    if not found:
        raise InputError(f"{folder} holds no image", hint=f"looked for {', '.join(sorted(SUFFIXES))}")
    return [(address, name) for name, address in found]


def read_stored(address: str) -> bytes:
    """The bytes at an address."""
    import fsspec

    try:
        with fsspec.open(address, "rb") as file:
            return bytes(file.read())
    except Exception as error:  # every store has exceptions of its own
        raise ImageError(f"{address} cannot be read ({type(error).__name__}: {error})") from error
