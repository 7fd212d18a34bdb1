"""The one place that writes and reads this package's files: atomically, with hashes, never pickled.

A file is written beside its final name, flushed to the disk and then renamed, so that a reader sees the
old content or the new one, and an interrupted write leaves nothing under the final name.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError, InputError

if TYPE_CHECKING:
    import numpy as np


LEFTOVER = ".reweigh-part"
"""Ends the name of a file that is still being written; no other program uses it."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its name on success and vanishes on failure.

    Raises:
        ArtifactError: The disk is full, or the place cannot be written to.
    """
    path = Path(path)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{LEFTOVER}")
        # created with the default mode: reading the umask would change it for other threads
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Flush a rename to the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn a failed write into an error that names the file and the reason."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"{path} cannot be written ({error.strerror or error})",
            hint=_REMEDIES.get(error.errno or 0, "choose another place, then run it again")
            + "; what was there before is untouched",
        ) from error
    except ValueError as error:
        if "null" not in str(error):
            raise
        raise InputError(
            f"{str(path)!r} is not a file name ({error})", hint="choose another place"
        ) from error


_REMEDIES = {
    errno.ENOSPC: "make room, then run it again",
    errno.EDQUOT: "make room, then run it again",
    errno.EROFS: "this place is read-only: choose another one",
    errno.EACCES: "you may not write there: choose another place",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.ENOTDIR: "there is a file where a folder is needed: choose another place",
    errno.EEXIST: "there is a file where a folder is needed: choose another place",
    errno.ENOENT: "its folder was removed in the meantime: run it again",
}


def drop_abandoned(folder: Path) -> None:
    """Remove temporary files of killed writers from a folder that one process writes to."""
    for left in folder.glob(f".*.{'[0-9a-f]' * 8}{LEFTOVER}"):
        with contextlib.suppress(OSError):
            left.unlink()


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a whole file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Write a whole UTF-8 file atomically."""
    write_bytes(path, encode(text, path))


def encode(text: str, path: str | Path) -> bytes:
    """Encode the text of a file as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the text for {path} is not valid Unicode ({error})") from error


def to_json(value: Any) -> str:
    """Render JSON the same way everywhere: sorted keys, two spaces, a final newline, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: str | Path, value: Any) -> None:
    """Write canonical JSON atomically."""
    write_text(path, to_json(value))


def read_json(path: str | Path) -> Any:
    """Read JSON, naming the file when it is missing or broken."""
    path = Path(path)
    data = _read_bytes(path)
    try:
        return parse_json(data.decode())
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"{path} is not valid JSON ({error})", hint="the file was cut or altered; make or fetch it again"
        ) from error


def parse_json(text: str | bytes) -> Any:
    """Parse JSON, refusing an object that names a key twice: readers would disagree about its value."""
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return found


def require_fields(page: Mapping[str, Any], path: str | Path, fields: Mapping[str, type]) -> None:
    """Refuse a page that lacks a field, or holds another kind of value there."""
    for name, kind in fields.items():
        value = page.get(name)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            seen = f"a {type(value).__name__}" if name in page else "nothing"
            raise ArtifactError(
                f"{path} holds {seen} as {name!r}, not a {kind.__name__}",
                hint="it was written by hand or by another version; make it again",
            )


def write_tensors(path: str | Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write NumPy arrays as safetensors, atomically."""
    write_bytes(path, tensor_bytes(tensors))


def tensor_bytes(
    tensors: Mapping[str, np.ndarray[Any, Any]], metadata: dict[str, str] | None = None
) -> bytes:
    """Return NumPy arrays as safetensors; equal content gives equal bytes if ``metadata`` has at most one entry."""
    import numpy as np
    from safetensors.numpy import save

    # safetensors writes raw memory, which is wrong for a strided or transposed array
    arrays = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    return bytes(save(arrays, metadata=metadata))


def read_tensors(path: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read safetensors into NumPy arrays, naming the file when it is missing or broken."""
    return read_safetensors(Path(path))[0]


def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Return the arrays of a safetensors file, and its metadata."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ArtifactError(f"{path} does not exist", hint="check the path")
    try:
        with safe_open(path, framework="np") as file:
            # copies: an array must not change when its file is overwritten
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read ({error.strerror or error})") from error
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is not a whole safetensors file ({error})",
            hint="the file was cut or altered; make or fetch it again",
        ) from error


def sha256_file(path: str | Path) -> str:
    """Hash a file's bytes."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256_text(text: str) -> str:
    """Hash a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_json(value: Any) -> str:
    """Hash a value through its canonical JSON."""
    return sha256_text(to_json(value))


def append_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows and flush them to the disk; a last line that a kill cut short is dropped, a whole one completed.

    The first rows of a file are written atomically, so that every file begins with a whole row.
    """
    lines = [json.dumps(row, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n" for row in rows]
    data = "".join(lines).encode()
    if not path.exists() or path.stat().st_size == 0:
        write_bytes(path, data)
        return
    with naming(path), path.open("ab+") as file:
        _mend_last_line(file)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _mend_last_line(file: Any) -> None:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    data = file.read()
    start = data.rfind(b"\n") + 1
    if _is_whole(data[start:]):
        file.write(b"\n")
    else:
        file.truncate(start)
    file.seek(0, os.SEEK_END)


def _is_whole(line: bytes) -> bool:
    """Whether a last line without its newline is a whole row: a part of an object is never valid JSON."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """Read the rows of a JSONL file; a last line that was cut short is left out."""
    path = Path(path)
    rows = []
    data = _read_bytes(path)
    whole, _, last = data.rpartition(b"\n")
    whole = data if _is_whole(last) else whole
    for number, line in enumerate(whole.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(
                f"{path}, line {number}, is not JSON ({error})",
                hint="the file was altered after it was written",
            ) from error
        if not isinstance(row, dict):
            raise ArtifactError(f"{path}, line {number}, is a {type(row).__name__}, not an object")
        rows.append(row)
    return rows


def _read_bytes(path: Path) -> bytes:
    """Return a file's content, naming the file when it is missing or cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} does not exist", hint="check the path") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ArtifactError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from error


@contextlib.contextmanager
def only_one(folder: Path, *, lock: str = ".lock") -> Iterator[None]:
    """Keep a second process out of a folder; the lock ends with the process, however it ends.

    Opens the lock file without truncating it or following a link: an existing file may be the user's.
    """
    path = folder / lock
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no file locks on this system: the user must not run two processes at once
        yield
        return
    if path.is_symlink():
        raise InputError(f"{path} is a link, not a lock file", hint="remove it, or choose another folder")
    with naming(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise ArtifactError(f"{path} cannot be locked ({error.strerror})") from error
            raise InputError(
                f"another process is writing to {folder}", hint="wait for it, or stop it"
            ) from error
        drop_abandoned(folder)
        yield
    finally:
        os.close(handle)
