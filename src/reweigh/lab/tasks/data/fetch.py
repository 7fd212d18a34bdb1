"""Fetch one complete file: from a URL, resuming a partial download, or from a local copy.

Bytes are collected in ``<name>.part``; the file gets its name only when length and checksum agree. So a truncated
download is never taken for a complete one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError, InputError, MissingExtraError, ReweighError
from reweigh.files.artifacts import naming, read_json, sha256_file, write_json

if TYPE_CHECKING:
    import httpx

MAX_BYTES = 64 << 30
"""Bound of a file whose size the catalogue does not give."""

Advance = Callable[[int], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file to fetch.

    Args:
        name: Path below the dataset's folder; the name of the archive if it is unpacked.
        url: Official address.
        size: Bytes, where known.
        checksum: ``sha256:...`` or ``md5:...``, where known.
        holds: What a zip file holds, if it is to be unpacked; a local copy that is already unpacked is recognized by it.
    """

    name: str
    url: str
    size: int | None = None
    checksum: str | None = None
    holds: tuple[str, ...] = ()


class FetchError(ReweighError):
    """A file could not be fetched completely."""


class _Cut(Exception):
    """The transfer ended early; the received bytes are kept."""


def download(
    file: File,
    target: Path,
    *,
    attempts: int = 5,
    first_wait: float = 1.0,
    timeout: float = 60.0,
    advance: Advance = lambda size: None,
) -> str:
    """Download ``file`` to ``target`` and return its SHA-256; a part left by an earlier run is resumed."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError("fetching data", "eval", "httpx") from error
    part = _part(target)
    reported = 0

    def reached(position: int) -> None:
        nonlocal reported
        if position > reported:
            advance(position - reported)
            reported = position

    # Compressed bodies would change what lengths and ranges refer to.
    headers = {"Accept-Encoding": "identity"}
    with httpx.Client(timeout=timeout, follow_redirects=True, headers=headers) as client:
        for attempt in range(attempts):
            try:
                expected = _continue(client, file, part, reached)
                break
            except _Cut as error:
                if attempt + 1 == attempts:
                    raise FetchError(
                        f"{file.url} failed {attempts} times; last error: {error}",
                        hint="run the same command again to resume from the bytes on disk",
                    ) from error
                time.sleep(first_wait * 2**attempt)
    return _finish(file, part, target, expected)


def copy(file: File, source: Path, target: Path) -> str:
    """Copy ``file`` from a local copy, with the same checks as a download."""
    part = _part(target)
    with naming(target):
        _forget(part)
        shutil.copyfile(source, part)
        return _finish(file, part, target, None)


def digest_of(path: Path, checksum: str) -> str:
    """Hash a file with the algorithm of a ``kind:value`` checksum, in the same form."""
    kind = checksum.partition(":")[0]
    if kind not in ("md5", "sha256"):
        raise InputError(f"the checksum {checksum!r} is neither sha256: nor md5:")
    with path.open("rb") as stream:
        return f"{kind}:{hashlib.file_digest(stream, kind).hexdigest()}"


def _part(target: Path) -> Path:
    """Return the file that gathers the bytes, in a folder that exists."""
    with naming(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(target.name + ".part")


def _finish(file: File, part: Path, target: Path, expected: int | None) -> str:
    size = part.stat().st_size
    for wanted, who in ((expected, "the server announced"), (file.size, "the catalogue says")):
        if wanted is not None and size != wanted:
            _forget(part)
            raise FetchError(
                f"{file.name} has {size:,} bytes, but {who} {wanted:,}",
                hint="the copy is incomplete or of another version; fetch it again",
            )
    if file.checksum is not None and (found := digest_of(part, file.checksum)) != file.checksum:
        _forget(part)
        raise FetchError(
            f"{file.name} has the checksum {found}, expected {file.checksum}",
            hint="the file is damaged or of another version and was not kept",
        )
    sha256 = sha256_file(part)
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(target)
    _forget(part)
    return sha256


def _continue(client: httpx.Client, file: File, part: Path, reached: Advance) -> int | None:
    """Fetch what is missing; return the whole length as the server announced it."""
    import httpx

    mark = _mark(part, file.url)
    start = part.stat().st_size if mark and part.is_file() else 0
    headers = {"Range": f"bytes={start}-", "If-Range": mark} if mark and start else {}
    try:
        with client.stream("GET", file.url, headers=headers) as answer:
            if answer.status_code == 416:
                _forget(part)
                raise _Cut("the part on disk is longer than the file on the server")
            _check_status(answer, file)
            # A server may send everything instead of what is missing.
            resumed = answer.headers.get("content-range", "").startswith(f"bytes {start}-")
            start = start if answer.status_code == 206 and resumed else 0
            expected = _announced(answer, file, start)
            _remember(part, file.url, answer)
            _write(answer, file, part, start, reached)
    except httpx.TimeoutException as error:
        raise _Cut("timed out") from error
    except (httpx.TransportError, httpx.StreamError) as error:
        raise _Cut(str(error) or type(error).__name__) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # endless redirects, bodies that cannot be decoded
        raise FetchError(
            f"{file.url} cannot be fetched ({error or type(error).__name__})",
            hint="download it from the dataset's page and pass it with --from",
        ) from error
    got = part.stat().st_size
    if expected is not None and got < expected:
        raise _Cut(f"received {got:,} of {expected:,} bytes")
    return expected


def _check_status(answer: httpx.Response, file: File) -> None:
    if file.url.startswith("https:") and answer.url.scheme != "https":
        raise FetchError(
            f"{file.url} redirects to {answer.url}, which is not encrypted", hint="download it yourself"
        )
    if answer.status_code in (200, 206):
        return
    if answer.status_code in (408, 429) or answer.status_code >= 500:
        raise _Cut(f"HTTP {answer.status_code}")
    raise FetchError(
        f"{file.url} returned HTTP {answer.status_code}",
        hint="the file may have moved; download it from the dataset's page and pass it with --from",
    )


def _announced(answer: httpx.Response, file: File, start: int) -> int | None:
    """Return the announced length of the whole file; refuse a body that could be cut short unnoticed."""
    length = answer.headers.get("content-length", "")
    if length.isdigit():
        whole = start + int(length)
        if file.size not in (None, whole):
            raise FetchError(
                f"{file.name} has {whole:,} bytes at {file.url}, but the catalogue says {file.size:,}",
                hint="this is a different version; download the right one yourself and pass it with --from",
            )
        return whole
    chunked = (
        "chunked" in answer.headers.get("transfer-encoding", "").lower()
    )  # chunked bodies mark their own end
    if file.size is None and file.checksum is None and not chunked:
        raise FetchError(
            f"{file.url} does not say how long it is, and neither size nor checksum is known",
            hint="download it yourself and pass it with --from",
        )
    return None


def _write(answer: httpx.Response, file: File, part: Path, start: int, reached: Advance) -> None:
    most = MAX_BYTES if file.size is None else file.size
    with naming(part), part.open("r+b" if part.exists() else "wb") as stream:
        stream.seek(start)
        stream.truncate()
        # Blocks as they arrive: a fixed size would hold back, and lose, the last bytes before an interruption.
        for block in answer.iter_raw():
            stream.write(block)
            reached(stream.tell())
            if stream.tell() > most:
                _forget(part)
                raise FetchError(
                    f"{file.url} sends more than the {most:,} bytes of {file.name}",
                    hint="this is a different version or file; download the right one yourself and pass it with --from",
                )


def _sidecar(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _remember(part: Path, url: str, answer: httpx.Response) -> None:
    mark = answer.headers.get("etag") or answer.headers.get("last-modified")
    # A weak ETag does not promise equal bytes, so such a part is never resumed.
    write_json(_sidecar(part), {"url": url, "mark": None if (mark or "W/").startswith("W/") else mark})


def _mark(part: Path, url: str) -> str | None:
    """Return what identifies the version that a part belongs to, if it came from this address."""
    try:
        kept = read_json(_sidecar(part))
    except ArtifactError:
        return None
    mark = kept.get("mark") if isinstance(kept, dict) and kept.get("url") == url else None
    return mark if isinstance(mark, str) else None


def _forget(part: Path) -> None:
    for path in (part, _sidecar(part)):
        path.unlink(missing_ok=True)
