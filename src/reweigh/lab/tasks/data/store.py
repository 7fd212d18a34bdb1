"""The data folder: one subfolder per dataset, with a receipt of what was fetched and how it was checked.

A dataset is complete when its receipt lists every file of the catalogue; an entry is written last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import only_one, read_json, sha256_file, write_json
from reweigh.lab.tasks.data import fetch
from reweigh.lab.tasks.data.fetch import File
from reweigh.lab.tasks.data.unpack import SCRATCH, unpack

VARIABLE = "REWEIGH_DATA"
RECEIPT = "receipt.json"
State = Literal["absent", "partial", "complete"]
Receipt = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A benchmark's files, their license, and what the user has to do."""

    name: str
    title: str
    license: str
    page: str
    files: tuple[File, ...]
    by_hand: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of all files, if every size is known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def content(self) -> tuple[str, ...]:
        """Files and folders that its archives hold."""
        return tuple(name for file in self.files for name in file.holds)


def data_root() -> Path:
    """Return the folder of all datasets: ``REWEIGH_DATA``, or ``~/.cache/reweigh/data``."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return Path.home() / ".cache" / "reweigh" / "data"
    try:
        folder = Path(given).expanduser()
        folder.exists()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{VARIABLE} cannot be used as a folder ({reason}): {given[:200]!r}",
            hint="set it to another folder",
        ) from error
    return folder


def folder_of(entry: Dataset) -> Path:
    """Return the folder of one dataset, whether it exists or not."""
    return data_root() / entry.name


def state(entry: Dataset) -> State:
    """Return how much of a dataset its receipt lists; ``check`` reads the bytes."""
    receipt = _receipt(entry)
    had = [file for file in entry.files if file.name in receipt]
    if not had:
        return "absent"
    return "complete" if len(had) == len(entry.files) else "partial"


def describe(entry: Dataset) -> dict[str, Any]:
    """Describe a dataset: size, checksums, license, addresses, and how much of it has been fetched."""
    return {
        "name": entry.name,
        "title": entry.title,
        "size": entry.size,
        "checksums": [file.checksum or "unknown" for file in entry.files],
        "licence": entry.license,
        "page": entry.page,
        "urls": [file.url for file in entry.files],
        "by_hand": entry.by_hand,
        "state": state(entry),
        "folder": str(folder_of(entry)),
    }


def get(
    entry: Dataset, *, source: Path | None = None, advance: Callable[[int], Any] = lambda size: None
) -> Path:
    """Fetch the missing files of a dataset, from their addresses or from a local copy."""
    folder = folder_of(entry)
    if source is not None and not source.exists():
        raise InputError(
            f"{source} does not exist", hint="--from needs a folder or a file with your own copy"
        )
    with only_one(folder):
        for scratch in folder.glob(f"{SCRATCH}*"):  # left by a kill during unpacking
            shutil.rmtree(scratch, ignore_errors=True)
        for file in entry.files:
            receipt = _receipt(entry)
            if file.name in receipt and not _problems(folder, file, receipt[file.name], thorough=False):
                continue
            receipt[file.name] = _bring(file, folder, source, receipt.get(file.name), advance)
            write_json(folder / RECEIPT, {"dataset": entry.name, "files": receipt})
    return folder


def check(entry: Dataset) -> list[str]:
    """Read everything again and list what is wrong."""
    folder = folder_of(entry)
    receipt = _receipt(entry)
    found = []
    for file in entry.files:
        if file.name not in receipt:
            found.append(f"{file.name} has not been fetched")
        else:
            found += _problems(folder, file, receipt[file.name], thorough=True)
    return found


def _bring(
    file: File, folder: Path, source: Path | None, before: Receipt | None, advance: Callable[[int], Any]
) -> Receipt:
    """Fetch or copy one file; ``before`` is its earlier receipt."""
    target = folder / file.name
    known = file.checksum
    unlisted = before is None and source is None and target.is_file()
    if unlisted and known is not None and fetch.digest_of(target, known) == known:
        # The command was killed between the file and its receipt.
        return _accept(file, folder, file.url, sha256_file(target))
    first = (before or {}).get("sha256")
    if before is not None and known is None and isinstance(first, str) and before.get("from") == file.url:
        # Without a published checksum, it must be the file that was fetched first.
        file = replace(file, checksum=f"sha256:{first}")
    if source is None:
        return _accept(file, folder, file.url, fetch.download(file, target, advance=advance))
    if (found := _find(file, source)) is None:
        return _adopt(file, source, folder)
    return _accept(file, folder, str(found), fetch.copy(file, found, target))


def _accept(file: File, folder: Path, origin: str, sha256: str) -> Receipt:
    """Unpack a complete file if it is an archive, and record its contents."""
    target = folder / file.name
    checked = "catalogue" if file.checksum else "first fetch"
    entry: Receipt = {
        "from": origin,
        "sha256": sha256,
        "size": target.stat().st_size,
        "checked_against": checked,
    }
    if file.holds:
        entry["holds"] = unpack(target, folder, holds=file.holds)
        target.unlink()
    return entry


def _find(file: File, source: Path) -> Path | None:
    """Find a file in a local copy: the given path, or below it by relative path or bare name."""
    if source.is_file():
        return source if source.name == Path(file.name).name else None
    candidates = (source / file.name, source / Path(file.name).name)
    return next((path for path in candidates if path.is_file()), None)


def _adopt(file: File, source: Path, folder: Path) -> Receipt:
    """Copy the content of an archive from a local copy that is already unpacked."""
    if not file.holds or not source.is_dir() or not all((source / name).exists() for name in file.holds):
        wanted = " or ".join([file.name, *([", ".join(file.holds)] if file.holds else [])])
        raise InputError(f"{source} does not contain {wanted}", hint=f"the official file is {file.url}")
    sizes: dict[str, int] = {}
    for name in file.holds:
        root = source / name
        paths = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
        for path in paths:
            relative = path.relative_to(source).as_posix()
            target = folder / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + ".part")
            shutil.copyfile(path, part)
            part.replace(target)
            sizes[relative] = target.stat().st_size
    return {"from": str(source), "sha256": None, "checked_against": "nothing, unpacked copy", "holds": sizes}


def _problems(folder: Path, file: File, entry: Receipt, *, thorough: bool) -> list[str]:
    if file.holds:
        content = entry.get("holds")
        if not isinstance(content, dict):
            return [f"the receipt does not say what {file.name} holds"]
        return [
            f"{name} {'is missing' if not (folder / name).is_file() else 'has a different size'}"
            for name, size in content.items()
            if not (folder / name).is_file() or (folder / name).stat().st_size != size
        ]
    path = folder / file.name
    if not path.is_file():
        return [f"{file.name} is missing"]
    if path.stat().st_size != entry.get("size"):
        return [f"{file.name} has {path.stat().st_size:,} bytes, the receipt says {entry.get('size')}"]
    if not thorough:
        return []
    if file.checksum is not None and (found := fetch.digest_of(path, file.checksum)) != file.checksum:
        return [f"{file.name} has the checksum {found}, expected {file.checksum}"]
    if sha256_file(path) != entry.get("sha256"):
        return [f"{file.name} was altered since it was fetched"]
    return []


def _receipt(entry: Dataset) -> dict[str, Receipt]:
    path = folder_of(entry) / RECEIPT
    if not path.is_file():
        return {}
    page = read_json(path)
    files = page.get("files") if isinstance(page, dict) else None
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise ArtifactError(
            f"{path} is not a receipt written by reweigh", hint=f"remove it, then: reweigh data {entry.name}"
        )
    return dict(files)


@contextmanager
def parsing(problem: str, hint: str | None = None) -> Iterator[None]:
    """Report a missing key or a wrong type in a benchmark's own file as an error that names the problem."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{problem} ({error!r})", hint=hint) from error


def find_files(data_dir: Path, pattern: str) -> list[Path]:
    """List the files that match a pattern in a folder, or else in its subfolders, at most two levels down."""
    for prefix in ("", "*/", "*/*/"):
        if found := sorted(path for path in data_dir.glob(prefix + pattern) if path.is_file()):
            return found
    return []


def require_file(data_dir: Path, name: str, *, benchmark: str) -> Path:
    """Find one file by name, or say how to get it."""
    found = find_files(data_dir, name)
    if not found:
        raise InputError(
            f"{name} is not in {data_dir}",
            hint=f"fetch it with `reweigh data {benchmark}`, or pass the folder of your own copy",
        )
    return found[0]
