"""JSON pages, tensor files and JSONL rows that verify themselves: each carries the hash of its own content.

A reader refuses, by name, a file with one bit changed; a row is also sealed with the hash of its owner, so that it cannot be
taken into another's file.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import (
    append_jsonl,
    naming,
    parse_json,
    read_json,
    read_jsonl,
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

ROW_SEAL = "sha256"
"""Key under which a sealed row carries the hash of the rest of it and of its owner."""

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


def seal_row(row: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return a row with the hash of itself and of ``owner``, the hash of what it belongs to."""
    return {**row, ROW_SEAL: sha256_json([owner, dict(row)])}


def append_sealed_rows(path: str | Path, rows: Iterable[Mapping[str, Any]], *, owner: str) -> None:
    """Append rows that each carry their hash.

    The folder must exist: one that was removed while a command ran is not created again without its content.
    """
    path = Path(path)
    given = [seal_row(row, owner) for row in rows]
    with naming(path):
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    require_own_rows(path, owner=owner)
    append_jsonl(path, given)


def has_own_rows(path: Path, *, owner: str) -> bool:
    """Whether a file begins with a row of the owner's.

    The first row is written whole or not at all, so only a later line can have been cut short by a kill.
    """
    with naming(path), path.open("rb") as file:
        line = file.readline()
    try:
        row = parse_json(line)
        return isinstance(row, dict) and row == seal_row(_bare(row), owner)
    except (ValueError, RecursionError):
        return False


def require_own_rows(path: Path, *, owner: str) -> None:
    """Refuse a file with content that does not begin with a row of the owner's."""
    if path.exists() and path.stat().st_size and not has_own_rows(path, owner=owner):
        raise ArtifactError(
            f"{path} exists, and its first row does not belong here",
            hint="move the file away, or choose another folder",
        )


def _bare(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != ROW_SEAL}


def read_sealed_rows(path: str | Path, *, owner: str) -> list[dict[str, Any]]:
    """Read the whole rows of a sealed JSONL file; one that was altered, or is another owner's, is named."""
    found = []
    for number, sealed in enumerate(read_jsonl(path), start=1):
        row = _bare(sealed)
        try:
            whole = sealed == seal_row(row, owner)
        except (ValueError, RecursionError):
            whole = False
        if not whole:
            raise altered(path, f", row {number},")
        found.append(row)
    return found
