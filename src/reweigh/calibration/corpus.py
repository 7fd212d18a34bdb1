"""The calibration corpus: which images, in which order, identified by name and content."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from reweigh.errors import CalibrationError, ImageError, InputError
from reweigh.files.artifacts import sha256_file, sha256_json
from reweigh.images import SUFFIXES, list_images, read_image
from reweigh.shards import Shard
from reweigh.text import escape_bytes

if TYPE_CHECKING:
    from PIL.Image import Image


WHOLE = Shard()
UNREADABLE = "unreadable"
"""Stands for the hash of a file that cannot be read at all."""


@dataclass(frozen=True)
class CorpusImage:
    """One image: its name, a hash of its content, and how to read it.

    Reading raises ``ImageError`` for an image that cannot be read (it is skipped), and ``CalibrationError`` if the content
    is not what was hashed, here or on another machine.
    """

    name: str
    sha256: str
    read: Callable[[], Image]

    @property
    def key(self) -> str:
        """Name and content together; two shards share an image only if both agree."""
        return f"{self.name}#{self.sha256}"


@dataclass(frozen=True)
class Corpus:
    """Images in their calibration order."""

    images: tuple[CorpusImage, ...]

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def hash(self) -> str:
        """Identifies the images and their order."""
        return sha256_json([image.key for image in self.images])

    def batches(self, size: int) -> list[tuple[CorpusImage, ...]]:
        """Cut the images into the batches that are decoded together."""
        return [self.images[start : start + size] for start in range(0, len(self), size)]


def open_corpus(source: str | Path | Sequence[Any], *, shard: Shard = WHOLE, batch_size: int = 1) -> Corpus:
    """Open a folder, a manifest file (one path per line, a JSON list, or JSONL), or a list.

    List items are paths, pictures, or ``(name, picture)`` pairs. Paths in a manifest are relative to it, unless they are
    addresses such as ``s3://bucket/a.png``, which fsspec reads. A shard takes whole batches of ``batch_size``, cut as in a
    run over everything, and hashes only its own images.
    """
    entries = _entries(source)
    chosen = shard.of_batches(entries, batch_size)
    if not chosen:
        raise InputError(
            f"shard {shard} holds no image: there are {len(entries)} images, {batch_size} at a time",
            hint="cut the work into fewer shards",
        )
    images = {}
    for image in (entry() for entry in chosen):
        if image.key in images:
            raise ImageError(
                f"{image.name} is listed twice with the same content", hint="each image counts once"
            )
        images[image.key] = image
    return Corpus(tuple(images.values()))


def require_images(source: str | Path) -> None:
    """Refuse a folder or manifest that names no image; cheap enough to do before a model is loaded."""
    if not is_address(str(source)):  # a store is listed once, when it is opened
        _entries(source)


def _entries(source: str | Path | Sequence[Any]) -> list[Callable[[], CorpusImage]]:
    """List the images of a source in order, at least one; calling an entry hashes it."""
    found = _listed(source)
    if not found:
        raise InputError(f"{source if isinstance(source, str | Path) else 'the list'} names no image")
    return found


def _listed(source: str | Path | Sequence[Any]) -> list[Callable[[], CorpusImage]]:
    if not isinstance(source, str | Path):
        return [partial(_item, item, number) for number, item in enumerate(source)]
    if is_address(str(source)):
        return [partial(_image_at, address, name) for address, name in list_stored(str(source))]
    path = Path(source)
    if path.is_dir():
        return [partial(_image_at, file, file.relative_to(path).as_posix()) for file in list_images(path)]
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        raise InputError(f"{path} is one image, not a folder or a manifest", hint="pass its folder")
    if path.is_file():
        names = _manifest(path)
        return [partial(_image_at, name if is_address(name) else path.parent / name, name) for name in names]
    raise InputError(f"{path} is neither a folder nor a manifest file", hint="pass images to calibrate on")


def _image_at(place: Path | str, name: str) -> CorpusImage:
    """Hash the image at a path, or at an address of a store."""
    digest = _content(place)[0]
    return CorpusImage(escape_bytes(name), digest, partial(_read_at, place, digest))


def _content(place: Path | str) -> tuple[str, Path | str | bytes]:
    """Return the hash of an image and what to decode."""
    try:
        if isinstance(place, Path):
            return sha256_file(place), place
        data = read_stored(place)
        return hashlib.sha256(data).hexdigest(), data
    except (OSError, ValueError):  # reading it again will say why
        return UNREADABLE, place


def _read_at(place: Path | str, digest: str) -> Image:
    found, content = _content(place)
    if found != digest and digest == UNREADABLE:
        raise ImageError(f"{place} could not be read when the images were listed")
    if found != digest:
        now = "cannot be read" if found == UNREADABLE else "has different content"
        raise CalibrationError(
            f"{place} was listed, but {now} on {platform.node()}",
            hint="keep the images unchanged, at a path that every machine can read; finished batches are kept",
        )
    return read_image(read_stored(content) if isinstance(content, str) else content)


def _item(item: Any, number: int) -> CorpusImage:
    if isinstance(item, str | Path):
        return _image_at(Path(item), Path(item).name)
    named = isinstance(item, tuple) and len(item) == 2
    name, picture = item if named else (f"image-{number:06d}", item)
    if not all(hasattr(picture, part) for part in ("tobytes", "size", "mode")):
        raise InputError(f"item {number} of the list is a {type(picture).__name__}, not a path or a picture")
    try:
        content = hashlib.sha256(f"{picture.mode}{picture.size}".encode() + picture.tobytes()).hexdigest()
    except OSError:  # opened lazily, and its file is cut
        content = UNREADABLE
    return CorpusImage(escape_bytes(str(name)), content, partial(read_image, picture))


def _manifest(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".json":
            rows = json.loads(text)
        elif path.suffix == ".jsonl":
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        else:
            rows = [line.strip() for line in text.split("\n") if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"the manifest {path} cannot be read ({error})", hint="one path per line, a JSON list, or JSONL"
        ) from error
    listed = rows if isinstance(rows, list) else [None]
    names = [row.get("image", row.get("file_name")) if isinstance(row, dict) else row for row in listed]
    paths = [name for name in names if isinstance(name, str)]
    if len(paths) != len(names):
        raise InputError(f"the manifest {path} must list paths, or objects with an `image` path")
    for number, name in enumerate(paths, start=1):
        if "\0" in name or not name.strip() or escape_bytes(name) != name:
            raise InputError(
                f"the manifest {path} names {name[:80]!r} in entry {number}, which is not a file name",
                hint="one path per line, a JSON list, or JSONL",
            )
    return paths


def is_address(place: str) -> bool:
    """Tell whether a place is an address, not a path on this machine."""
    return "://" in place


def list_stored(folder: str) -> list[tuple[str, str]]:
    """List the images below an address: each one's address and relative name, sorted by name."""
    from fsspec.core import url_to_fs

    try:
        system, root = url_to_fs(folder)
        paths = [str(path) for path in system.find(root)]
    except Exception as error:  # every store has exceptions of its own
        raise InputError(
            f"{folder} cannot be listed ({type(error).__name__}: {error})",
            hint="check the address, and that the package for this kind of storage is installed",
        ) from error
    start = len(root.rstrip("/")) + 1
    images = [path for path in paths if PurePosixPath(path).suffix.lower() in SUFFIXES]
    found = sorted((path[start:], system.unstrip_protocol(path)) for path in images)
    if not found:
        raise InputError(f"{folder} holds no image", hint=f"looked for {', '.join(sorted(SUFFIXES))}")
    return [(address, name) for name, address in found]


def read_stored(address: str) -> bytes:
    """Read the bytes at an address."""
    import fsspec

    try:
        with fsspec.open(address, "rb") as file:
            return bytes(file.read())
    except Exception as error:  # every store has exceptions of its own
        raise ImageError(f"{address} cannot be read ({type(error).__name__}: {error})") from error
