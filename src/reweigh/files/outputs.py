"""One rule for replacing files: only what this package wrote, unchanged since then, is replaced without being asked.

A folder of outputs holds a sealed record of what was written into it. A file whose content the record does not know, the
user's own or an output that somebody edited, is refused by name unless the caller forces it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import sha256_file, write_text
from reweigh.files.seals import read_sealed, write_sealed

RECORD = ".reweigh-outputs.json"
"""Names the outputs of a folder, with the hash of each."""


def require_replaceable(paths: Iterable[Path], *, force: bool = False) -> None:
    """Refuse if one of these files exists and is not an unchanged output of this package; check before any work.

    Raises:
        InputError: Names the first such file.
    """
    for path in paths:
        if force or not (path.exists() or path.is_symlink()):
            continue
        if not is_own(path):
            raise InputError(
                f"{path} exists and was not written by reweigh, or was changed since",
                hint="choose another place, move the file away, or replace it with --force",
            )


def is_own(path: Path) -> bool:
    """Whether a file is an output of this package, as it was written: recorded beside it, or a sealed page itself."""
    if not path.is_file() or path.is_symlink():
        return False
    known = _recorded(path.parent).get(path.name)
    if known is not None and known == sha256_file(path):
        return True
    return path.suffix == ".json" and _is_sealed(path)


def write_output(path: Path, text: str, *, force: bool = False) -> None:
    """Write a text file that a person asked for, and record it; see ``require_replaceable``."""
    require_replaceable([path], force=force)
    write_text(path, text)
    record_outputs([path])


def record_outputs(paths: Iterable[Path]) -> None:
    """Note files that were just written as outputs of this package; a file that was removed is forgotten."""
    given = list(paths)
    for folder in {path.parent for path in given}:
        known = {name: digest for name, digest in _recorded(folder).items() if (folder / name).is_file()}
        known |= {path.name: sha256_file(path) for path in given if path.parent == folder}
        write_sealed(folder / RECORD, {"files": known})


def _recorded(folder: Path) -> dict[str, Any]:
    """The outputs of a folder; a record that was altered vouches for nothing."""
    try:
        files = read_sealed(folder / RECORD).get("files")
    except ArtifactError:
        return {}
    return files if isinstance(files, dict) else {}


def _is_sealed(path: Path) -> bool:
    try:
        read_sealed(path)
    except ArtifactError:
        return False
    return True
