"""The images of a calibration: which ones, in which order, known by name and content."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import CalibrationError, ImageError, InputError
from reweigh.files.artifacts import sha256_file, sha256_json
from reweigh.images import SUFFIXES, list_images, read_image
from reweigh.text import escape_bytes

if TYPE_CHECKING:
    from PIL.Image import Image


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
        """Name and content together."""
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


def open_corpus(source: str | Path | Sequence[Any]) -> Corpus:
    """Open a folder, a manifest file (one path per line, a JSON list, or JSONL), or a list, and hash every image.

    List items are paths, pictures, or ``(name, picture)`` pairs. Paths in a manifest are relative to it.
    """
    images = {}
    for image in (entry() for entry in _entries(source)):
        if image.key in images:
            raise ImageError(
                f"{image.name} is listed twice with the same content", hint="each image counts once"
            )
        images[image.key] = image
    return Corpus(tuple(images.values()))


def require_images(source: str | Path) -> None:
    """Refuse a folder or manifest that names no image; cheap enough to do before a model is loaded."""
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
    if "://" in str(source):
        raise InputError(
            f"{source} is an address, and images are read from folders",
            hint="mount or download the folder, and pass its path",
        )
    path = Path(source)
    if path.is_dir():
        return [partial(_image_at, file, file.relative_to(path).as_posix()) for file in list_images(path)]
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        raise InputError(f"{path} is one image, not a folder or a manifest", hint="pass its folder")
    if path.is_file():
        return [partial(_image_at, path.parent / name, name) for name in _manifest(path)]
    raise InputError(f"{path} is neither a folder nor a manifest file", hint="pass images to calibrate on")


def _image_at(path: Path, name: str) -> CorpusImage:
    digest = _digest(path)
    return CorpusImage(escape_bytes(name), digest, partial(_read_at, path, digest))


def _digest(path: Path) -> str:
    try:
        return sha256_file(path)
    except (OSError, ValueError):  # reading it again will say why
        return UNREADABLE


def _read_at(path: Path, digest: str) -> Image:
    found = _digest(path)
    if found != digest and digest == UNREADABLE:
        raise ImageError(f"{path} could not be read when the images were listed")
    if found != digest:
        now = "cannot be read" if found == UNREADABLE else "has different content"
        raise CalibrationError(
            f"{path} was listed, but {now} on {platform.node()}",
            hint="keep the images unchanged, at a path that every machine can read; finished batches are kept",
        )
    return read_image(path)


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
