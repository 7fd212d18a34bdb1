"""Arrays and a page about them in one safetensors file: the header is the page, and carries the hash of both."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import parse_json, read_safetensors, tensor_bytes, to_json, write_bytes
from reweigh.files.outputs import overwrites

if TYPE_CHECKING:
    import numpy as np

PAGE, DIGEST = "page", "sha256"
"""The entry of the header with the page, and the page's key with the hash of itself and the arrays."""


def write_paged(path: Path, page: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write both atomically; equal content gives equal bytes."""
    text = to_json({**page, DIGEST: _digest(page, arrays)})
    write_bytes(path, tensor_bytes(arrays, {PAGE: text}))


def read_paged(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Read what ``write_paged`` wrote; a file with one bit changed is refused."""
    arrays, header = read_safetensors(path)
    try:
        page = parse_json(header.get(PAGE, "null"))
        whole = isinstance(page, dict) and page.pop(DIGEST, None) == _digest(page, arrays)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise ArtifactError(
            f"{path} was altered after it was written, or was not written by reweigh",
            hint="fetch it or make it again",
        )
    return page, arrays


def peek(path: Path) -> dict[str, Any]:
    """Return the page of a file without verifying it; empty for a file that has none."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="np") as file:
            page = parse_json((file.metadata() or {}).get(PAGE, "{}"))
    except Exception:  # not safetensors at all, or cut
        return {}
    return page if isinstance(page, dict) else {}


def claim_paged(path: Path, kind: str) -> None:
    """Refuse to replace a file that is not one of these; call it before any work.

    Raises:
        InputError: There is another file of that name, and ``--overwrite`` was not given.
    """
    if path.exists() and not peek(path) and not overwrites():
        raise InputError(
            f"{path} exists and is not {kind}",
            hint="choose another folder, or replace it with --overwrite",
        )


def _digest(page: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    import numpy as np

    digest = hashlib.sha256(to_json(dict(page)).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(to_json([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
