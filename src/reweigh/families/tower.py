"""The size of the pictures that a vision tower sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def seen_size(vision: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of the pictures in pixels: those of the inputs, or the tower's own by default.

    They differ if a tower interpolates its position embeddings to the size that the processor resizes to.
    """
    pixels = inputs.get("pixel_values")
    if pixels is not None and getattr(pixels, "ndim", 0) == 4:
        return int(pixels.shape[-2]), int(pixels.shape[-1])
    return _pair(vision.image_size)


def seen_patches(vision: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns of the grid of patches."""
    (height, width), (patch_height, patch_width) = seen_size(vision, inputs), _pair(vision.patch_size)
    return height // patch_height, width // patch_width


def _pair(size: Any) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)
