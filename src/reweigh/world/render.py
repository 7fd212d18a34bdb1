"""From a scene to pixels.

A sprite is one drawing at one size, angle and side, with smooth edges and a thin outline. Sprites and backdrops are cached
and pasted, so a core renders several hundred small scenes a second; at another size everything is drawn from its vectors.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFilter

from reweigh.world.backgrounds import backdrop, draw_shapes
from reweigh.world.drawings import CATALOGUE, Shape

if TYPE_CHECKING:
    from reweigh.world.scenes import Instance, Scene

OUTLINE = (34, 32, 40)
MARGIN = 6.0
"""Room around the 100 by 100 square, for tilted drawings and the outline."""


@lru_cache(maxsize=60_000)
def sprite(name: str, color: str, pose: float, side: int, tilt: int, flip: bool) -> Image.Image:
    """Draw an object whose square is ``side`` pixels wide as an RGBA picture, cropped to what is visible."""
    scale = 4 if side < 200 else 2
    shapes = _placed(CATALOGUE[name].shapes(color, pose), tilt, flip)
    wide = side * scale
    canvas = Image.new("RGBA", (wide, wide), (0, 0, 0, 0))
    draw_shapes(canvas, shapes, wide / (100 + 2 * MARGIN), margin=MARGIN, round_ends=True)
    edge = _edge(canvas, max(1, round(wide / 110)))
    small = edge.resize((edge.width // scale, edge.height // scale), Image.Resampling.BOX)
    box = small.getchannel("A").point(lambda a: 255 if a > 40 else 0).getbbox()
    return small.crop(box) if box else small


def _placed(shapes: tuple[Shape, ...], tilt: int, flip: bool) -> list[Shape]:
    c, s = math.cos(math.radians(tilt)), math.sin(math.radians(tilt))
    placed = []
    for shape in shapes:
        points = [(100 - x if flip else x, y) for x, y in shape.points]
        if tilt:
            points = [(50 + c * (x - 50) - s * (y - 50), 50 + s * (x - 50) + c * (y - 50)) for x, y in points]
        placed.append(Shape(tuple(points), shape.fill, shape.width))
    return placed


def _edge(canvas: Image.Image, width: int) -> Image.Image:
    """Put a dark rim under the drawing, so that it stands out from any background."""
    grown = canvas.getchannel("A").filter(ImageFilter.MaxFilter(2 * width + 1))
    rim = Image.new("RGBA", canvas.size, (*OUTLINE, 0))
    rim.putalpha(grown.point(lambda a: round(a * 0.85)))
    rim.alpha_composite(canvas)
    return rim


def render(scene: Scene, size: int) -> Image.Image:
    """Draw the scene as an RGB image of ``size`` by ``size`` pixels."""
    canvas = backdrop(scene.kind, scene.variant, size).copy()
    for instance in scene.instances:
        picture, (left, top) = placed_sprite(instance, size)
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


def placed_sprite(instance: Instance, size: int) -> tuple[Image.Image, tuple[int, int]]:
    """Return an object's sprite in a picture of ``size`` pixels, and its left and top edge."""
    i = instance
    picture = sprite(i.name, i.colour, i.pose, round(i.span * size), i.tilt, i.flip)
    return picture, (round(i.x * size - picture.width / 2), round(i.y * size - picture.height / 2))


def boxes(scene: Scene, size: int) -> list[tuple[str, tuple[int, int, int, int]]]:
    """Return the boxes in pixels, clipped to the image."""
    found = []
    for instance in scene.instances:
        picture, (left, top) = placed_sprite(instance, size)
        right, bottom = left + picture.width, top + picture.height
        found.append((instance.name, (max(left, 0), max(top, 0), min(right, size), min(bottom, size))))
    return found
