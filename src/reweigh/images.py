"""The one place that reads images: bounded, checked, always RGB and upright."""

from __future__ import annotations

import difflib
import hashlib
import threading
import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from reweigh.errors import ImageError, InputError
from reweigh.text import escape_bytes, shortened

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
UNREAD = frozenset(
    {".avif", ".heic", ".heif", ".jp2", ".jxl", ".svg", ".psd", ".dng", ".cr2", ".nef", ".arw"}
)
"""Endings of pictures that are not read."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""Formats to read, whatever a file's name: other readers of Pillow start programs (PostScript) or guess."""

MAX_PIXELS = 48_000_000
MIN_SIDE = 2
MAX_RATIO = 100
"""Longest side by shortest. Processors that enlarge the short side turn a thinner picture into gigabytes."""
_OPENING = threading.Lock()
"""Warning filters and Pillow's growing list of formats are shared by all threads; decoding needs no lock."""


def read_image(source: str | Path | bytes | Image, *, max_pixels: int = MAX_PIXELS) -> Image:
    """Open an image file, encoded bytes or a PIL image as an upright RGB picture.

    Raises:
        ImageError: It is missing, truncated, not an image, smaller than 2 pixels a side, more than 100 times as long as
            it is wide, or larger than ``max_pixels``.
    """
    from PIL import Image as pillow

    if isinstance(source, pillow.Image):
        _check_size(source, "the image", max_pixels)
        return _upright(source, "the image")
    with open_image(source, max_pixels=max_pixels) as opened:
        return _upright(opened, _name(source))


def open_image(source: str | Path | bytes, *, max_pixels: int = MAX_PIXELS) -> Image:
    """Open an image and check its size without decoding its pixels."""
    from PIL import Image as pillow
    from PIL import UnidentifiedImageError

    name = _name(source)
    try:
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", pillow.DecompressionBombWarning
            )  # the limit here is the lower one
            opened = pillow.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
    except FileNotFoundError as error:
        raise ImageError(f"{name} does not exist", hint=_near(Path(name))) from error
    except IsADirectoryError as error:
        raise ImageError(f"{name} is a folder, not a picture", hint=_within(Path(name))) from error
    except UnidentifiedImageError as error:
        raise ImageError(
            f"{name} is not one of {', '.join(FORMATS)}",
            hint="check that the file is complete, or convert it",
        ) from error
    except pillow.DecompressionBombError as error:
        raise ImageError(f"{name} is far too large ({error})", hint="scale it down first") from error
    except Exception as error:  # decoders raise all kinds of exceptions on broken files
        raise _unreadable(name, error) from error
    try:
        _check_size(opened, name, max_pixels)
    except ImageError:
        opened.close()
        raise
    return opened


def _name(source: str | Path | bytes) -> str:
    return "the image" if isinstance(source, bytes) else escape_bytes(str(source))


def _check_size(picture: Image, name: str, max_pixels: int) -> None:
    width, height = picture.size
    if width * height > max_pixels:
        raise ImageError(
            f"{name} has {width}x{height} = {width * height / 1e6:.1f} megapixels, more than {max_pixels / 1e6:g}",
            hint="scale it down first",
        )
    if min(width, height) < MIN_SIDE:
        raise ImageError(
            f"{name} is {width}x{height} pixels, too small to describe", hint="use a real picture"
        )
    if max(width, height) > MAX_RATIO * min(width, height):
        raise ImageError(
            f"{name} is {width}x{height} pixels; its sides differ by more than {MAX_RATIO} to 1",
            hint="cut it into parts",
        )


def _upright(picture: Image, name: str) -> Image:
    from PIL import ImageOps

    try:
        picture.load()
        turned = ImageOps.exif_transpose(picture)
        return _eight_bits(turned, name).convert("RGB")
    except ImageError:
        raise
    except Exception as error:
        raise _unreadable(name, error) from error


def _eight_bits(picture: Image, name: str) -> Image:
    """Return the picture in 8 bits; Pillow would clip deeper gray at 255 and turn nearly all of it white."""
    if picture.mode.startswith("I;16"):
        return picture.point(lambda value: value / 256).convert("L")
    if picture.mode in ("I", "F"):
        raise ImageError(
            f"{name} has 32-bit pixels, whose value range the file does not give",
            hint="convert it to 8 or 16 bits",
        )
    return picture


def _within(folder: Path) -> str:
    """Return a hint that names the pictures directly in a folder."""
    endings = sorted({path.suffix for path in folder.iterdir() if path.suffix.lower() in SUFFIXES})
    if not endings:
        return "it contains no picture"
    return f"name one, or all of them: {' '.join(f'{folder}/*{ending}' for ending in endings)}"


def _near(path: Path) -> str | None:
    """Return a hint for a name that does not exist: an existing name like it."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    there = [found.name for found in folder.iterdir() if found.suffix.lower() in SUFFIXES]
    near = difflib.get_close_matches(path.name, there, n=1, cutoff=0.75)
    return f"did you mean {folder / near[0]}?" if near else None


def _unreadable(name: str, error: Exception) -> ImageError:
    return ImageError(f"{name} cannot be read as an image ({error})", hint="check that the file is complete")


def list_images(folder: str | Path) -> list[Path]:
    """List all image files below a folder, sorted by relative path, including broken links."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and _is_file_or_broken_link(path)
    ]
    if not found:
        raise InputError(f"{folder} contains no image", hint=f"looked for {', '.join(sorted(SUFFIXES))}")
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def unread_pictures(folder: str | Path) -> str | None:
    """Say which files below a folder are pictures in a format that is not read; None if there are none."""
    found = sorted(path.name for path in Path(folder).rglob("*") if path.suffix.lower() in UNREAD)
    if not found:
        return None
    return f"{len(found)} pictures in {folder} are in a format that is not read: {shortened(found)}. Convert them to JPEG."


def _is_file_or_broken_link(path: Path) -> bool:
    """Whether a path is a file or a broken link, for which reading gives the reason."""
    return path.is_file() or (path.is_symlink() and not path.exists())


def pixels_hash(picture: Image) -> str:
    """Hash a picture's mode, size and pixels, whatever file it came from."""
    digest = hashlib.sha256(f"{picture.mode} {picture.size}".encode())
    digest.update(picture.tobytes())
    return digest.hexdigest()
