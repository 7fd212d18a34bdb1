"""The one place that writes and reads this package's files: atomically, with hashes, never pickled.

A file is written beside its final name, flushed to the disk and then renamed, so that a reader sees the
old content or the new one, and an interrupted write leaves nothing under the final name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError, InputError

if TYPE_CHECKING:
    import numpy as np


LEFTOVER = ".part"
"""Ends the name of a file that is still being written."""

SEAL = "page_sha256"
"""Key under which a sealed page carries the hash of the rest of it."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its name on success and vanishes on failure.

    Raises:
        ArtifactError: The disk is full, or the place cannot be written to.
    """
    path = Path(path)
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=LEFTOVER, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say which file could not be written, and why."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"{path} cannot be written ({error.strerror or error})",
            hint="make room or choose another place, then run it again; what was there before is untouched",
        ) from error


def drop_leftovers(folder: str | Path) -> None:
    """Remove what killed writers left below a folder: temporary files that never got their final name."""
    for path in Path(folder).rglob(f".*{LEFTOVER}"):
        path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a whole file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Write a whole UTF-8 file atomically."""
    write_bytes(path, text.encode())


def to_json(value: Any) -> str:
    """Render JSON the same way everywhere: sorted keys, two spaces, a final newline, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: str | Path, value: Any) -> None:
    """Write canonical JSON atomically."""
    write_text(path, to_json(value))


def read_json(path: str | Path) -> Any:
    """Read JSON, naming the file when it is missing or broken."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} does not exist", hint="check the path") from error
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"{path} is not valid JSON ({error})", hint="the file was cut or altered; make or fetch it again"
        ) from error


def write_sealed(path: str | Path, page: Mapping[str, Any]) -> None:
    """Write a JSON object together with the hash of its content."""
    write_json(path, {**page, SEAL: sha256_json(dict(page))})


def read_sealed(path: str | Path) -> dict[str, Any]:
    """Read what ``write_sealed`` wrote, refusing a page whose content is not what was written."""
    page = read_json(path)
    seal = page.pop(SEAL, None) if isinstance(page, dict) else None
    if seal is None:
        raise ArtifactError(f"{path} is not a page of this package: it carries no {SEAL}")
    try:
        whole = seal == sha256_json(page)
    except ValueError:  # a number that JSON cannot hold, such as 1e999
        whole = False
    if not whole:
        raise ArtifactError(
            f"{path} was altered after it was written", hint="fetch it or make it again; do not edit it"
        )
    return dict(page)


def write_tensors(path: str | Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write NumPy arrays as safetensors, atomically and with the same bytes for the same content."""
    import numpy as np
    from safetensors.numpy import save

    # safetensors writes the memory as it lies, which is another array where it is strided or transposed
    write_bytes(path, save({name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}))


def read_tensors(path: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read safetensors into NumPy arrays, naming the file when it is missing or broken."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(path)
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist", hint="check the path")
    try:
        return dict(load_file(path))
    except (SafetensorError, ValueError) as error:
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


def append_jsonl(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows and flush them to the disk, mending a last line that a kill cut short."""
    path = Path(path)
    lines = [json.dumps(row, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n" for row in rows]
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            _drop_torn_line(file)
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())


def _drop_torn_line(file: Any) -> None:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """Read the whole lines of a JSONL file; a last line without its newline was never finished and is left out."""
    path = Path(path)
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist", hint="check the path")
    rows = []
    whole, _, _torn = path.read_bytes().rpartition(b"\n")
    for number, line in enumerate(whole.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{path}, line {number}, is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ArtifactError(f"{path}, line {number}, is a {type(row).__name__}, not an object")
        rows.append(row)
    return rows


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keep a second process out of a folder; the lock ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # this system has no such locks: the user must keep two processes apart
        yield
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"another process is writing to {folder}", hint="wait for it, or stop it"
            ) from error
        yield
