"""One rule for replacing files: only what this package wrote, unchanged since then, is replaced without being asked.

A folder of outputs holds a sealed record of what was written into it. A command claims its outputs before it does any
work: a file whose content the record does not know, the user's own or an output that somebody edited, is refused by name
unless ``overwrite`` was called (--overwrite). The hash of an output is recorded before it is written, so that a kill leaves
nothing unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import encode, replacing, sha256_file, sha256_text
from reweigh.files.seals import read_sealed, write_sealed

RECORD = ".reweigh-outputs.json"
"""Names the outputs of a folder, with the hashes that each may have."""

_overwrite = False


def overwrite(allowed: bool) -> None:
    """Allow or forbid, for this process, that outputs replace files that this package did not write."""
    global _overwrite
    _overwrite = allowed


def overwrites() -> bool:
    """Whether outputs may replace files that this package did not write."""
    return _overwrite


def claim(paths: Iterable[Path]) -> None:
    """Refuse if one of these files exists and is not an unchanged output of this package; call it before any work.

    Raises:
        InputError: Names the first such file.
    """
    foreign = [path for path in paths if _exists(path) and not is_own(path)]
    for path in foreign:
        if not _overwrite or _is_folder(path):
            raise _occupied(path)
    for path in foreign:
        _allow(path, _mark(path))


def is_own(path: Path) -> bool:
    """Whether a file is an output of this package, as it was written: recorded beside it, or a sealed page itself."""
    if _is_folder(path):
        return False
    known = _recorded(path.parent).get(path.name, [])
    if known and _mark(path) in known:
        return True
    return path.suffix == ".json" and path.is_file() and not path.is_symlink() and _is_sealed(path)


@contextmanager
def replacing_output(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside an output that takes its name on success; see ``claim`` for what is refused."""
    with replacing(path) as temporary:
        yield temporary
        if _exists(path) and not is_own(path):
            raise _occupied(path)
        _allow(path, sha256_file(temporary))


def write_output(path: Path, content: str | bytes) -> Path:
    """Write a file that a person asked for, and record it."""
    with replacing_output(path) as temporary:
        temporary.write_bytes(encode(content, path) if isinstance(content, str) else content)
    return path


def write_sealed_output(path: Path, page: Mapping[str, Any]) -> Path:
    """Write a JSON page that a person asked for; its own seal vouches for it, so no record is needed."""
    if _exists(path) and not is_own(path):
        raise _occupied(path)
    write_sealed(path, page)
    return path


def _allow(path: Path, mark: str) -> None:
    """Record that an output may have this content, beside the one that it has now if that is ours."""
    folder = path.parent
    known = {name: marks for name, marks in _recorded(folder).items() if _exists(folder / name)}
    now = [one for one in known.get(path.name, []) if one != mark and _exists(path) and one == _mark(path)]
    if known.get(path.name) != (marks := [*now, mark]):
        write_sealed(folder / RECORD, {"files": {**known, path.name: marks}})


def _recorded(folder: Path) -> dict[str, list[str]]:
    """Return the recorded outputs of a folder; an altered record counts as empty."""
    try:
        files = read_sealed(folder / RECORD).get("files")
    except ArtifactError:
        return {}
    return (
        {name: marks for name, marks in files.items() if isinstance(marks, list)}
        if isinstance(files, dict)
        else {}
    )


def _mark(path: Path) -> str:
    """Return a file's hash, or that of a link's target path."""
    if path.is_symlink():
        return sha256_text(f"link to {path.readlink()}")
    return sha256_file(path) if path.is_file() else "neither file nor folder"


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_sealed(path: Path) -> bool:
    try:
        read_sealed(path)
    except ArtifactError:
        return False
    return True


def _occupied(path: Path) -> InputError:
    if _is_folder(path):
        return InputError(f"{path} exists and is a folder", hint="choose another place, or move it away")
    return InputError(
        f"{path} exists and was not written by reweigh, or was changed since",
        hint="choose another place, move it away, or replace it with --overwrite",
    )
