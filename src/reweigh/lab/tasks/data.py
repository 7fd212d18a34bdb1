"""The benchmarks' files: where they come from, how they are checked, and where they are kept.

Files of the Hugging Face Hub (addresses ``hf://datasets/OWNER/NAME@REVISION/PATH``) are fetched by huggingface_hub, all
others by pooch, which compares them with the checksum pinned here. A file gets its name only when it is whole, so what
is there is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reweigh.errors import InputError, MissingExtraError, ReweighError, first_line
from reweigh.files.artifacts import naming, only_one
from reweigh.files.outputs import RECORD
from reweigh.progress import is_quiet

VARIABLE = "REWEIGH_DATA"
SCRATCH = ".reweigh-fetching-"
RETRIES = 3
TIMEOUT = 60.0
BLOCK = 1 << 18
State = Literal["absent", "partial", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file to fetch.

    Args:
        name: Path below the dataset's folder; the name of the archive if it is unpacked.
        url: Official address, of a fixed revision where there is one.
        size: Bytes, where known.
        checksum: ``sha256:...`` or ``md5:...``, where known.
        holds: What a zip file holds, if it is to be unpacked.
    """

    name: str
    url: str
    size: int | None = None
    checksum: str | None = None
    holds: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """The files and folders that exist once it has been fetched."""
        return self.holds or (self.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A benchmark's files, their license, and what the user has to do."""

    name: str
    title: str
    license: str
    page: str
    files: tuple[File, ...]
    by_hand: str = ""
    shared: str = ""
    """The folder that it shares with other datasets; by default it has one of its own name."""

    @property
    def size(self) -> int | None:
        """Bytes of all files, if every size is known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def content(self) -> tuple[str, ...]:
        """Files and folders that its archives hold."""
        return tuple(name for file in self.files for name in file.holds)


class FetchError(ReweighError):
    """A file could not be fetched, or is not the expected one."""


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
    return data_root() / (entry.shared or entry.name)


def state(entry: Dataset) -> State:
    """Return how much of a dataset is there; ``check`` also compares checksums."""
    there = [_is_there(file, folder_of(entry)) for file in entry.files]
    return "complete" if all(there) else "partial" if any(there) else "absent"


def describe(entry: Dataset) -> dict[str, Any]:
    """Describe a dataset: size, checksums, license, addresses, and how much of it has been fetched."""
    return {
        "name": entry.name,
        "title": entry.title,
        "size": entry.size,
        "checksums": [_pinned_by(file) for file in entry.files],
        "license": entry.license,
        "page": entry.page,
        "urls": [file.url for file in entry.files],
        "by_hand": entry.by_hand,
        "state": state(entry),
        "folder": str(folder_of(entry)),
    }


def get(entry: Dataset, *, source: Path | None = None) -> Path:
    """Bring the files that are missing or damaged, from their addresses or from a local copy."""
    folder = folder_of(entry)
    if source is not None and not source.exists():
        raise InputError(
            f"{source} does not exist", hint="--from needs a folder or a file with your own copy"
        )
    with only_one(folder):
        for left in folder.glob(f"{SCRATCH}*"):  # by a command that was killed
            shutil.rmtree(left, ignore_errors=True)
        for file in entry.files:
            if _problems(file, folder):
                with naming(folder / file.name), _scratch(folder) as scratch:
                    _bring(file, folder, source, scratch)
    return folder


def check(entry: Dataset) -> list[str]:
    """List the files that are missing, and those that differ from their checksum."""
    return [problem for file in entry.files for problem in _problems(file, folder_of(entry))]


def _pinned_by(file: File) -> str:
    """Name what fixes the content: a checksum, the revision of the Hub, or nothing."""
    return file.checksum or ("revision" if file.url.startswith("hf://") else "unknown")


def _is_there(file: File, folder: Path) -> bool:
    return all((folder / name).exists() for name in file.results)


def _problems(file: File, folder: Path) -> list[str]:
    if missing := [name for name in file.results if not (folder / name).exists()]:
        return [f"{name} is missing" for name in missing]
    if file.holds or file.checksum is None:
        return []
    found = _digest(folder / file.name, file.checksum)
    return [] if found == file.checksum else [f"{file.name} has the checksum {found}, not {file.checksum}"]


def _digest(path: Path, checksum: str) -> str:
    """Hash a file with the algorithm of a ``kind:value`` checksum, in the same form."""
    kind = checksum.partition(":")[0]
    with path.open("rb") as stream:
        return f"{kind}:{hashlib.file_digest(stream, kind).hexdigest()}"


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Make a folder for what is not whole yet."""
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _bring(file: File, folder: Path, source: Path | None, scratch: Path) -> None:
    """Bring one file, or what an archive holds, into its place."""
    whole = scratch / "whole"
    arrived = (scratch / "archive" if file.holds else whole) / file.name
    if source is None:
        _download(file, arrived)
    elif (copy := _find(file, source)) is not None:
        arrived.parent.mkdir(parents=True)
        shutil.copyfile(copy, arrived)
        _require_checksum(file, arrived, copy)
    elif file.holds and source.is_dir() and all((source / name).exists() for name in file.holds):
        for name in file.holds:  # already unpacked
            (whole / name).parent.mkdir(parents=True, exist_ok=True)
            if (source / name).is_dir():
                shutil.copytree(source / name, whole / name, ignore=shutil.ignore_patterns(RECORD))
            else:
                shutil.copyfile(source / name, whole / name)
    else:
        wanted = " or ".join([file.name, *([", ".join(file.holds)] if file.holds else [])])
        raise InputError(f"{source} does not contain {wanted}", hint=f"the official file is {file.url}")
    if file.holds and arrived.exists():
        _unpack(file, arrived, whole)
    for name in file.results:
        _require_no_links(whole, name, folder)
    for name in file.results:
        _move(whole / name, folder / name)


def _require_no_links(whole: Path, name: str, folder: Path) -> None:
    """Refuse to write through a symbolic link below the destination, which may lead anywhere."""
    below = (path.relative_to(whole) for path in (whole / name).rglob("*"))
    for path in (*Path(name).parents, Path(name), *below):
        if path != Path() and (folder / path).is_symlink():
            raise InputError(
                f"{folder / path} is a symbolic link; nothing is written through it",
                hint="remove it, or give the folder that it leads to",
            )


def _move(whole: Path, target: Path) -> None:
    """Give a whole file or folder its name; the files of a folder join those that are there."""
    if whole.is_dir() and target.is_dir():
        for path in sorted(whole.iterdir()):
            _move(path, target / path.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    whole.replace(target)


def _find(file: File, source: Path) -> Path | None:
    """Find a file in a local copy: the given path, or below it by relative path or bare name."""
    if source.is_file():
        return source if source.name == Path(file.name).name else None
    candidates = (source / file.name, source / Path(file.name).name)
    return next((path for path in candidates if path.is_file()), None)


def _require_checksum(file: File, path: Path, copy: Path) -> None:
    if file.checksum is not None and (found := _digest(path, file.checksum)) != file.checksum:
        raise FetchError(
            f"{copy} has the checksum {found}, but {file.name} has {file.checksum}",
            hint="it is damaged or of another version and was not used",
        )


def _download(file: File, target: Path) -> None:
    """Fetch a file from its address."""
    by_hand = "download it from the dataset's page and pass it with --from"
    if hub := re.fullmatch(r"hf://datasets/([^/]+/[^@]+)@([0-9a-f]{40})/(.+)", file.url):
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

        try:
            found = hf_hub_download(
                hub[1], hub[3], repo_type="dataset", revision=hub[2], local_dir=target.parent / "hub"
            )
        except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            raise FetchError(f"{file.url} cannot be fetched ({first_line(error)})", hint=by_hand) from error
        _move(Path(found), target)
        return
    try:
        import pooch
        from requests import RequestException
    except ImportError as error:
        raise MissingExtraError("fetching data", "eval", "pooch") from error
    pooch.get_logger().setLevel("WARNING")
    name = target.name
    fetcher = pooch.create(
        target.parent, "", registry={name: file.checksum}, urls={name: file.url}, retry_if_failed=RETRIES
    )
    web = pooch.HTTPDownloader(progressbar=not is_quiet(), chunk_size=BLOCK, timeout=TIMEOUT)
    try:
        fetcher.fetch(name, downloader=web)
    except RequestException as error:
        raise FetchError(f"{file.url} cannot be fetched ({first_line(error)})", hint=by_hand) from error
    except ValueError as error:  # what pooch raises for another checksum
        raise FetchError(
            f"{file.url} is not the expected file: {first_line(error)}",
            hint=f"it is damaged or of another version; {by_hand}",
        ) from error


def _unpack(file: File, archive: Path, folder: Path) -> None:
    """Unpack a zip file into a new folder; zipfile keeps every member inside and makes no links."""
    try:
        with zipfile.ZipFile(archive) as opened:
            if any(Path(name).name == RECORD for name in opened.namelist()):
                raise FetchError(
                    f"{file.name} contains {RECORD}, with which reweigh knows its own files",
                    hint="it is not the official archive; get it again",
                )
            opened.extractall(folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise FetchError(
            f"{file.name} cannot be unpacked ({error})", hint="it is damaged or not a zip file; get it again"
        ) from error
    if missing := [name for name in file.holds if not (folder / name).exists()]:
        raise FetchError(f"{file.name} does not contain {missing[0]}", hint="check that it is the right file")


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
