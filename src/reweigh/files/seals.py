"""JSON pages and tensor files that verify themselves: each carries the hash of its own content.

A reader refuses, by name, a file with one bit changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import (
    read_json,
    read_safetensors,
    sha256_json,
    tensor_bytes,
    to_json,
    write_bytes,
    write_json,
)

if TYPE_CHECKING:
    import numpy as np

SEAL = "page_sha256"
"""Key under which a sealed page carries the hash of the rest of it."""

SEALED_PAGE, TENSORS_SEAL = "page", "tensors_sha256"
"""Where the header of a sealed tensor file keeps its page, and the page the hash of the arrays."""


def write_sealed(path: str | Path, page: Mapping[str, Any]) -> None:
    """Write a JSON object together with the hash of its content."""
    write_json(path, with_seal(page))


def with_seal(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page with the hash of its content."""
    return {**page, SEAL: sha256_json(dict(page))}


def read_sealed(path: str | Path) -> dict[str, Any]:
    """Read what ``write_sealed`` wrote, refusing a page whose content is not what was written."""
    return unsealed(read_json(path), path)


def unsealed(page: Any, path: str | Path) -> dict[str, Any]:
    """Verify a page's seal and return the page without it."""
    seal = page.get(SEAL) if isinstance(page, dict) else None
    if seal is None:
        raise ArtifactError(f"{path} is not a page of this package: it carries no {SEAL}")
    content = {key: value for key, value in page.items() if key != SEAL}
    try:
        whole = seal == sha256_json(content)
    except (ValueError, RecursionError):  # a number that JSON cannot hold, such as 1e999
        whole = False
    if not whole:
        raise altered(path)
    return content


def altered(path: str | Path, where: str = "") -> ArtifactError:
    """Return the error for a file, or a place in it, that was altered."""
    return ArtifactError(
        f"{path}{where} was altered after it was written", hint="fetch it or make it again; do not edit it"
    )


def write_sealed_tensors(
    path: str | Path, tensors: Mapping[str, np.ndarray[Any, Any]], page: Mapping[str, Any]
) -> None:
    """Write arrays and a page about them into one file that carries the hash of both."""
    text = to_json(with_seal({**page, TENSORS_SEAL: sha256_tensors(tensors)}))
    write_bytes(path, tensor_bytes(tensors, {SEALED_PAGE: text}))


def read_sealed_tensors(path: str | Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Read what ``write_sealed_tensors`` wrote; a file with one bit changed is refused."""
    arrays, header = read_safetensors(Path(path))
    try:
        page = json.loads(header.get(SEALED_PAGE, "null"))
    except (ValueError, RecursionError):
        page = None
    page = unsealed(page, path)
    if page.pop(TENSORS_SEAL, None) != sha256_tensors(arrays):
        raise altered(path)
    return arrays, page


def sha256_tensors(tensors: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Hash arrays: their names, types, shapes and values, whatever the order of the names."""
    import numpy as np

    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(to_json([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
