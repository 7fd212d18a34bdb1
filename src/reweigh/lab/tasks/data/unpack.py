"""Unpack untrusted zip files: no paths outside the folder, no links, no devices, bounded size and number."""

from __future__ import annotations

import lzma
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from reweigh.errors import ReweighError

MAX_BYTES = 64 << 30
MAX_FILES = 1_000_000
BLOCK = 1 << 20
SCRATCH = ".reweigh-unpacking-"
END_RECORD = struct.Struct("<4s4H2LH")
"""The end of a zip file: signature, two disk numbers, members on this disk and in all, size, offset, comment."""

BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
    ValueError,
    LookupError,
    OverflowError,
    struct.error,
)
"""What the standard library raises on damaged, encrypted or unknown archives."""


class UnpackError(ReweighError):
    """An archive is broken or holds something that must not be unpacked."""


def unpack(
    archive: Path,
    folder: Path,
    *,
    holds: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
) -> dict[str, int]:
    """Unpack a zip file into a folder and return the size of every file by its relative path.

    An archive without the files and folders of ``holds`` is refused. Everything is first written to a scratch folder
    inside, so that a refused or broken archive leaves nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder))
    try:
        sizes = _write_all(archive, scratch, max_bytes, max_files)
        if missing := [name for name in holds if not (scratch / name).exists()]:
            raise UnpackError(
                f"{archive} does not contain {missing[0]}", hint="check that it is the right file"
            )
        for name in sizes:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).replace(target)
        return sizes
    except BROKEN as error:
        raise UnpackError(
            f"{archive} cannot be unpacked ({error})",
            hint="the archive is damaged or not a zip file; fetch it again",
        ) from error
    except OSError as error:
        raise UnpackError(
            f"{archive} cannot be unpacked into {folder} ({error.strerror or error})",
            hint="check free space and write permission" if error.errno else "it is damaged; fetch it again",
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def safe_name(name: str, archive: Path) -> str:
    """Return the relative path of a member; refuse one that could lead out of the folder."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part != "."]
    wrong = (
        path.is_absolute() or ".." in parts or not parts or any(c in name for c in "\\\0") or ":" in parts[0]
    )
    if wrong:
        raise UnpackError(f"{archive} contains a file called {name!r}, which could lead out of its folder")
    return "/".join(parts)


def _write_all(archive: Path, scratch: Path, max_bytes: int, max_files: int) -> dict[str, int]:
    sizes: dict[str, int] = {}
    left = max_bytes
    with zipfile.ZipFile(archive) as opened:
        for info in _files(opened, archive):
            name = safe_name(info.filename, archive)
            if name in sizes:
                raise UnpackError(f"{archive} contains {name!r} twice")
            if len(sizes) == max_files:
                raise UnpackError(f"{archive} contains more than {max_files:,} files")
            target = scratch / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                written = target.open("xb")
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise UnpackError(f"{archive} contains {name!r} both as a file and as a folder") from error
            with written, opened.open(info) as stream:
                # The sizes stated in an archive can be wrong, so count the unpacked bytes.
                while block := stream.read(BLOCK):
                    left -= len(block)
                    if left < 0:
                        raise UnpackError(f"{archive} unpacks to more than {max_bytes:,} bytes")
                    written.write(block)
                sizes[name] = written.tell()
    if not sizes:
        raise UnpackError(f"{archive} contains no file", hint="check that it is the right file, and complete")
    return sizes


def _files(opened: zipfile.ZipFile, archive: Path) -> Iterator[zipfile.ZipInfo]:
    """Yield the members that are files; refuse links, devices and an archive that lists fewer files than it states."""
    members = opened.infolist()
    stated = _stated_members(archive)
    if stated is not None and stated != len(members):
        raise UnpackError(
            f"{archive} states {stated} files and lists {len(members)}", hint="it is damaged; fetch it again"
        )
    for info in members:
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise UnpackError(f"{archive} holds {info.filename!r}, which is a link or a device")
        if info.is_dir():
            safe_name(info.filename, archive)
        else:
            yield info


def _stated_members(archive: Path) -> int | None:
    """Return the number of members stated at the end, which the standard library ignores; None beyond 65,534."""
    with archive.open("rb") as stream:
        stream.seek(max(0, archive.stat().st_size - (1 << 16) - END_RECORD.size))
        tail = stream.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < END_RECORD.size:
        return None
    stated = int(END_RECORD.unpack_from(tail, at)[4])
    return None if stated == 0xFFFF else stated
