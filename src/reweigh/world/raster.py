"""From vector shapes to pixels: one drawing at one size, angle and side, smooth-edged, with a thin outline.

A sprite is cached, because a world's scenes use the same few thousand of them again and again.
"""

from __future__ import annotations

import math
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFilter

from reweigh.world.drawings import CATALOGUE, Shape

OUTLINE = (34, 32, 40)
MARGIN = 6.0
"""Room around the 100 by 100 square, for tilted drawings and the outline."""


@lru_cache(maxsize=60_000)
def sprite(name: str, colour: str, pose: float, side: int, tilt: int, flip: bool) -> Image.Image:
    """An RGBA picture of an object whose square is ``side`` pixels wide, cut to what is visible."""
    scale = 4 if side < 200 else 2
    shapes = _placed(CATALOGUE[name].shapes(colour, pose), tilt, flip)
    canvas = _draw(shapes, side * scale)
    edge = _edge(canvas, max(1, round(side * scale / 110)))
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


def _draw(shapes: list[Shape], side: int) -> Image.Image:
    unit = side / (100 + 2 * MARGIN)
    canvas = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    draw = ImageDraw.Draw(canvas)
    for shape in shapes:
        points = [((x + MARGIN) * unit, (y + MARGIN) * unit) for x, y in shape.points]
        if shape.width:
            width = max(1, round(shape.width * unit))
            draw.line(points, fill=shape.fill, width=width, joint="curve")
            r = width / 2
            for x, y in (points[0], points[-1]):
                draw.ellipse((x - r, y - r, x + r, y + r), fill=shape.fill)
        else:
            draw.polygon(points, fill=shape.fill)
    return canvas


def _edge(canvas: Image.Image, width: int) -> Image.Image:
    """Put a dark rim under the drawing, so that it stands out from any background."""
    grown = canvas.getchannel("A").filter(ImageFilter.MaxFilter(2 * width + 1))
    rim = Image.new("RGBA", canvas.size, (*OUTLINE, 0))
    rim.putalpha(grown.point(lambda a: round(a * 0.85)))
    rim.alpha_composite(canvas)
    return rim
