"""The one place that reads images: bounded, checked, always RGB and upright."""

from __future__ import annotations

import threading
import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from reweigh.errors import ImageError, InputError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
MAX_PIXELS = 48_000_000
MIN_SIDE = 2
_OPENING = threading.Lock()
"""Filters of warnings, and Pillow's list of formats while it grows, belong to all threads; decoding needs no lock."""


def read_image(source: str | Path | bytes | Image, *, max_pixels: int = MAX_PIXELS) -> Image:
    """Open an image file, encoded bytes or a PIL image as an upright RGB picture.

    Raises:
        ImageError: It is missing, truncated, not an image, smaller than 2 pixels a side or larger than ``max_pixels``.
    """
    from PIL import Image as pillow

    if isinstance(source, pillow.Image):
        return _upright(source, "the image", max_pixels)
    name = "the image" if isinstance(source, bytes) else str(source)
    try:
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", pillow.DecompressionBombWarning
            )  # the limit here is the lower one
            opened = pillow.open(BytesIO(source) if isinstance(source, bytes) else source)
    except FileNotFoundError as error:
        raise ImageError(f"{name} does not exist") from error
    except pillow.DecompressionBombError as error:
        raise ImageError(f"{name} is far too large ({error})", hint="scale it down first") from error
    except Exception as error:  # decoders meet broken files with exceptions of every kind
        raise _unreadable(name, error) from error
    with opened:
        return _upright(opened, name, max_pixels)


def _upright(picture: Image, name: str, max_pixels: int) -> Image:
    from PIL import ImageOps

    width, height = picture.size
    if width * height > max_pixels:
        raise ImageError(
            f"{name} has {width}x{height} = {width * height / 1e6:.1f} megapixels, more than {max_pixels / 1e6:g}",
            hint="scale it down first",
        )
    if min(width, height) < MIN_SIDE:
        raise ImageError(
            f"{name} is {width}x{height} pixels, too small to describe", hint="give a real picture"
        )
    try:
        picture.load()
        turned = ImageOps.exif_transpose(picture)
        # Pillow would cut 16-bit grey off at 255, so that nearly all of it turned white
        return (turned.point(lambda value: value / 256).convert("L") if _is_deep(turned) else turned).convert(
            "RGB"
        )
    except Exception as error:
        raise _unreadable(name, error) from error


def _is_deep(picture: Image) -> bool:
    return picture.mode.startswith("I;16")


def _unreadable(name: str, error: Exception) -> ImageError:
    return ImageError(f"{name} cannot be read as an image ({error})", hint="is the file whole?")


def list_images(folder: str | Path) -> list[Path]:
    """All image files below a folder, sorted by their path relative to it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    found = [path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()]
    if not found:
        raise InputError(f"{folder} holds no image", hint=f"looked for {', '.join(sorted(SUFFIXES))}")
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())
