"""Backdrops of the scene types: a room or a landscape in a few shapes, in several color variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from PIL import Image, ImageDraw

from reweigh.world.drawings.pen import GLASS, WHITE, Color, Pen, Shape, mix

VARIANTS = 5
"""Color variants of each backdrop."""

SKY: Color = (158, 206, 240)


def _room(pen: Pen, wall: Color, floor: Color, horizon: float = 66) -> None:
    pen.box(wall, 0, 0, 100, horizon)
    pen.box(floor, 0, horizon, 100, 100)
    pen.line(mix(wall, (0, 0, 0), 0.3), 1.6, (0, horizon), (100, horizon))


def _land(pen: Pen, sky: Color, ground: Color, horizon: float = 46) -> None:
    pen.box(sky, 0, 0, 100, horizon)
    pen.box(ground, 0, horizon, 100, 100)


def _window(pen: Pen, x: float, y: float) -> None:
    pen.box(WHITE, x, y, x + 24, y + 26)
    pen.box(GLASS, x + 2, y + 2, x + 11, y + 24)
    pen.box(GLASS, x + 13, y + 2, x + 22, y + 24)


def kitchen(pen: Pen) -> None:
    _room(pen, mix((238, 222, 196), pen.main, 0.15), (200, 178, 150))
    for x in range(0, 101, 12):
        pen.line((214, 198, 172), 0.8, (x, 36), (x, 66))
    for y in (36, 46, 56):
        pen.line((214, 198, 172), 0.8, (0, y), (100, y))
    pen.box(mix((176, 128, 84), pen.main, 0.2), 0, 0, 100, 12)


def dining_room(pen: Pen) -> None:
    _room(pen, mix((216, 196, 206), pen.main, 0.2), (140, 92, 62), 60)
    pen.box(mix((190, 160, 170), pen.main, 0.3), 0, 40, 100, 60)
    pen.oval((250, 232, 170), 50, 2, 14, 7)


def living_room(pen: Pen) -> None:
    _room(pen, mix((226, 214, 190), pen.main, 0.25), (176, 136, 96), 62)
    _window(pen, 68, 8)
    pen.oval(mix((180, 110, 96), pen.main, 0.4), 48, 84, 42, 11)


def bedroom(pen: Pen) -> None:
    _room(pen, mix((188, 196, 226), pen.main, 0.2), (206, 188, 168), 64)
    for x in range(4, 100, 12):
        pen.line(mix((176, 184, 216), pen.main, 0.2), 2, (x, 0), (x, 63))
    _window(pen, 10, 8)


def bathroom(pen: Pen) -> None:
    _room(pen, mix((202, 234, 236), pen.main, 0.12), (156, 186, 196), 68)
    for x in range(0, 101, 10):
        pen.line((180, 216, 220), 0.9, (x, 0), (x, 68))
    for y in range(0, 68, 10):
        pen.line((180, 216, 220), 0.9, (0, y), (100, y))


def office(pen: Pen) -> None:
    _room(pen, mix((222, 226, 228), pen.main, 0.1), (122, 130, 144), 62)
    for x in (6, 38, 70):
        pen.box((196, 204, 210), x, 8, x + 24, 30)
        for y in (13, 18, 23):
            pen.line((226, 230, 234), 1.4, (x + 2, y), (x + 22, y))


def street(pen: Pen) -> None:
    _land(pen, mix((196, 214, 228), pen.main, 0.12), (112, 114, 120), 56)
    for i, (x, y) in enumerate(((0, 18), (20, 8), (42, 24), (62, 12), (82, 20))):
        pen.box(
            mix(((190, 150, 130), (170, 160, 150), (150, 140, 150))[i % 3], pen.main, 0.2), x, y, x + 18, 52
        )
        for wy in range(int(y) + 5, 46, 9):
            for wx in (x + 3, x + 11):
                pen.box((226, 222, 190), wx, wy, wx + 4, wy + 5)
    pen.box((176, 174, 170), 0, 52, 100, 58)
    for x in range(4, 100, 20):
        pen.box((236, 232, 214), x, 80, x + 10, 82)


def park(pen: Pen) -> None:
    _land(pen, SKY, mix((128, 190, 104), pen.main, 0.12), 48)
    for x, r in ((10, 16), (36, 12), (62, 15), (90, 18)):
        pen.oval(mix((92, 158, 92), pen.main, 0.15), x, 44, r, r * 0.8)
    pen.poly((222, 204, 164), (40, 100), (66, 100), (56, 54), (51, 54))


def beach(pen: Pen) -> None:
    _land(pen, SKY, mix((240, 220, 162), pen.main, 0.1), 58)
    pen.box((64, 150, 200), 0, 36, 100, 58)
    for y in (42, 49):
        pen.line((130, 194, 226), 1.4, (6, y), (34, y), (36, y + 1))
        pen.line((130, 194, 226), 1.4, (56, y + 2), (90, y + 2))
    pen.line(WHITE, 2, (0, 58), (30, 60), (60, 57), (100, 60))
    pen.oval((254, 226, 110), 86, 10, 8)


def farm(pen: Pen) -> None:
    _land(pen, mix(SKY, pen.main, 0.08), (162, 190, 86), 46)
    pen.poly((176, 66, 56), (64, 46), (64, 24), (78, 12), (92, 24), (92, 46))
    pen.box((240, 230, 216), 74, 32, 82, 46)
    for x in range(2, 64, 10):
        pen.line((220, 206, 180), 2, (x, 40), (x, 54))
    pen.line((220, 206, 180), 2, (0, 44), (62, 44))
    pen.line((220, 206, 180), 2, (0, 50), (62, 50))


def savanna(pen: Pen) -> None:
    _land(pen, mix((250, 214, 150), pen.main, 0.12), (212, 178, 96), 50)
    pen.oval((250, 236, 190), 24, 16, 9)
    for x in (8, 62, 84):
        pen.line((110, 82, 56), 2.4, (x, 50), (x, 34))
        pen.oval((128, 140, 72), x, 32, 15, 5)


def station(pen: Pen) -> None:
    _room(pen, mix((188, 178, 168), pen.main, 0.15), (150, 148, 150), 70)
    pen.arc((120, 116, 120), 3, 50, 46, 46, 42, 180, 360)
    for x in (20, 50, 80):
        pen.line((120, 116, 120), 3, (x, 10), (x, 70))
    pen.box((240, 206, 70), 0, 70, 100, 74)


def airport(pen: Pen) -> None:
    _land(pen, mix((206, 226, 244), pen.main, 0.08), (136, 142, 148), 56)
    pen.box((186, 194, 202), 0, 38, 46, 56)
    for x in range(3, 44, 8):
        pen.box((140, 180, 206), x, 42, x + 6, 50)
    pen.line((236, 240, 244), 1.6, (0, 76), (100, 76))
    for x in range(2, 100, 16):
        pen.box(WHITE, x, 90, x + 9, 92)


def market(pen: Pen) -> None:
    _room(pen, mix((230, 204, 172), pen.main, 0.15), (172, 138, 108), 60)
    for i, x in enumerate(range(0, 100, 10)):
        pen.box((208, 74, 66) if i % 2 else WHITE, x, 0, x + 10, 14)
        pen.oval((208, 74, 66) if i % 2 else WHITE, x + 5, 14, 5, 4)
    pen.box((156, 112, 70), 0, 56, 100, 64)


def mountain(pen: Pen) -> None:
    _land(pen, mix((176, 210, 242), pen.main, 0.08), (238, 244, 250), 54)
    for x, y, w in ((22, 10, 30), (60, 4, 36), (92, 16, 26)):
        pen.poly((132, 148, 172), (x - w, 54), (x, y), (x + w, 54))
        pen.poly(WHITE, (x - w * 0.32, y + 14), (x, y), (x + w * 0.32, y + 14))
    pen.line((214, 226, 240), 2, (0, 76), (40, 66), (100, 84))


def stadium(pen: Pen) -> None:
    _land(pen, mix((190, 196, 214), pen.main, 0.15), (108, 176, 98), 44)
    for row, y in enumerate((12, 20, 28, 36)):
        for i, x in enumerate(range(3, 100, 8)):
            pen.oval(((206, 96, 90), (96, 130, 196), (232, 204, 110))[(i + row) % 3], x, y, 2.2)
    pen.line(WHITE, 1.8, (0, 58), (100, 58))
    pen.line(WHITE, 1.8, (50, 44), (50, 100))
    pen.arc(WHITE, 1.8, 50, 76, 20, 12, 0, 360)


def cafe(pen: Pen) -> None:
    _room(pen, mix((150, 112, 92), pen.main, 0.2), (98, 72, 60), 64)
    pen.box((52, 64, 58), 10, 6, 58, 34)
    for y in (13, 20, 27):
        pen.line((210, 214, 206), 1.4, (15, y), (52, y))
    for x in (70, 86):
        pen.line((60, 46, 40), 1.2, (x, 0), (x, 12))
        pen.pie((250, 214, 130), x, 18, 7, 7, 180, 360)


_ROOMS = (kitchen, dining_room, living_room, bedroom, bathroom, office, market, cafe)
_PLACES = (street, park, beach, farm, savanna, station, airport, mountain, stadium)
BACKDROPS: dict[str, Callable[[Pen], None]] = {
    draw.__name__.replace("_", " "): draw for draw in (*_ROOMS, *_PLACES)
}
"""Drawing of a backdrop by the name of the scene type."""

_TINTS: tuple[Color, ...] = (
    (255, 255, 255),
    (250, 226, 180),
    (180, 214, 250),
    (206, 240, 200),
    (240, 200, 214),
)


@lru_cache(maxsize=512)
def backdrop(kind: str, variant: int, size: int) -> Image.Image:
    """Draw the backdrop of a scene type at any size."""
    pen = Pen(_TINTS[variant])
    BACKDROPS[kind](pen)
    scale = 2
    canvas = Image.new("RGB", (size * scale, size * scale), (0, 0, 0))
    draw_shapes(canvas, pen.shapes, size * scale / 100)
    return canvas.resize((size, size), Image.Resampling.BOX)


def draw_shapes(
    canvas: Image.Image,
    shapes: Sequence[Shape],
    unit: float,
    *,
    margin: float = 0.0,
    round_ends: bool = False,
) -> None:
    """Draw shapes on a canvas, ``unit`` pixels to a unit, inside a margin."""
    draw = ImageDraw.Draw(canvas)
    for shape in shapes:
        points = [((x + margin) * unit, (y + margin) * unit) for x, y in shape.points]
        if not shape.width:
            draw.polygon(points, fill=shape.fill)
            continue
        width = max(1, round(shape.width * unit))
        draw.line(points, fill=shape.fill, width=width, joint="curve")
        if round_ends:
            r = width / 2
            for x, y in (points[0], points[-1]):
                draw.ellipse((x - r, y - r, x + r, y + r), fill=shape.fill)
