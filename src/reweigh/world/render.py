"""From a scene to pixels, and to the owner of every patch.

Sprites and backdrops are drawn once and pasted, so a core renders several hundred small scenes a second; at another
size everything is drawn anew from its vectors.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFilter

from reweigh.world.backgrounds import backdrop
from reweigh.world.raster import sprite

if TYPE_CHECKING:
    from reweigh.world.scenes import Instance, Scene

PATCHES = 8
"""Patches a side of the embedded model's vision tower."""


def render(scene: Scene, size: int) -> Image.Image:
    """The scene as an RGB image of ``size`` by ``size`` pixels."""
    canvas = backdrop(scene.kind, scene.variant, size).copy()
    for instance in scene.instances:
        picture, (left, top) = _sprite(instance, size)
        canvas.paste(picture, (left, top), picture)
    if scene.blur:
        canvas = canvas.filter(ImageFilter.GaussianBlur(scene.blur * size / 112))
    return Image.fromarray(_exposed(scene, np.asarray(canvas)))


def _exposed(scene: Scene, pixels: np.ndarray) -> np.ndarray:
    """Apply light and sensor noise."""
    bright = pixels.astype(np.float32) * np.float32(scene.light)
    if scene.noise:
        seed = int.from_bytes(hashlib.sha256(scene.id.encode()).digest()[:8], "big")
        grain = np.random.Generator(np.random.PCG64(seed)).random(pixels.shape, dtype=np.float32)
        bright += (grain - np.float32(0.5)) * np.float32(2 * scene.noise)
    exposed: np.ndarray = np.clip(bright + np.float32(0.5), 0, 255).astype(np.uint8)
    return exposed


def _sprite(instance: Instance, size: int) -> tuple[Image.Image, tuple[int, int]]:
    i = instance
    picture = sprite(i.name, i.colour, i.pose, round(i.span * size), i.tilt, i.flip)
    return picture, (round(i.x * size - picture.width / 2), round(i.y * size - picture.height / 2))


def boxes(scene: Scene, size: int) -> list[tuple[str, tuple[int, int, int, int]]]:
    """Boxes in pixels, cut at the image's edges."""
    found = []
    for instance in scene.instances:
        picture, (left, top) = _sprite(instance, size)
        right, bottom = left + picture.width, top + picture.height
        found.append((instance.name, (max(left, 0), max(top, 0), min(right, size), min(bottom, size))))
    return found


def owners(scene: Scene, size: int, patches: int = PATCHES) -> np.ndarray:
    """For each patch, row by row, the share of its pixels that each instance shows: (instances, patches, patches)."""
    front = np.full((size, size), -1, dtype=np.int8)
    for number, instance in enumerate(scene.instances):
        picture, (left, top) = _sprite(instance, size)
        alpha = np.asarray(picture.getchannel("A")) > 127
        x0, y0, x1, y1 = (
            max(left, 0),
            max(top, 0),
            min(left + alpha.shape[1], size),
            min(top + alpha.shape[0], size),
        )
        front[y0:y1, x0:x1][alpha[y0 - top : y1 - top, x0 - left : x1 - left]] = number
    step = size // patches
    cells = front.reshape(patches, step, patches, step)
    return np.stack([(cells == n).mean(axis=(1, 3), dtype=np.float32) for n in range(len(scene.instances))])
