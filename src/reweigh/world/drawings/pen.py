"""A pen that records vector shapes in a 100 by 100 square, and the catalogue of drawings made with it.

Shapes are polygons and strokes with a flat fill; the pen knows nothing about pixels (see ``reweigh.world.render``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Color = tuple[int, int, int]
Point = tuple[float, float]

COLORS: dict[str, Color] = {
    "red": (214, 45, 48),
    "orange": (240, 138, 32),
    "yellow": (247, 206, 60),
    "green": (62, 158, 75),
    "blue": (52, 108, 204),
    "purple": (140, 76, 178),
    "pink": (240, 140, 170),
    "brown": (143, 92, 52),
    "black": (48, 48, 54),
    "white": (244, 244, 240),
    "gray": (148, 152, 160),
}
"""Named colors, which descriptions may use."""

INK: Color = (38, 36, 42)
WHITE: Color = (250, 250, 248)
STEEL: Color = (176, 184, 194)
WOOD: Color = (168, 116, 66)
GLASS: Color = (176, 216, 236)
SKIN: Color = (232, 184, 148)
LEAF: Color = (58, 142, 66)
GOLD: Color = (232, 186, 66)


def mix(a: Color, b: Color, share: float) -> Color:
    """Blend ``b`` into ``a``."""
    return tuple(round(x + (y - x) * share) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


@dataclass(frozen=True)
class Shape:
    """A filled polygon (``width`` 0) or a stroke with round ends."""

    points: tuple[Point, ...]
    fill: Color
    width: float = 0.0


@dataclass
class Pen:
    """Records shapes, back to front. ``main`` is the object's color, ``pose`` a number in [0, 1] the drawing may use."""

    main: Color
    pose: float = 0.5
    shapes: list[Shape] = field(default_factory=list)

    @property
    def dark(self) -> Color:
        return mix(self.main, INK, 0.38)

    @property
    def light(self) -> Color:
        return mix(self.main, WHITE, 0.42)

    def poly(self, fill: Color, *points: Point) -> None:
        self.shapes.append(Shape(points, fill))

    def line(self, fill: Color, width: float, *points: Point) -> None:
        self.shapes.append(Shape(points, fill, width))

    def oval(self, fill: Color, x: float, y: float, rx: float, ry: float | None = None) -> None:
        """Draw an ellipse by center and radii."""
        self.poly(fill, *_arc(x, y, rx, rx if ry is None else ry, 0, 360)[:-1])

    def ring(self, fill: Color, width: float, x: float, y: float, r: float) -> None:
        self.line(fill, width, *_arc(x, y, r, r, 0, 360))

    def arc(
        self, fill: Color, width: float, x: float, y: float, rx: float, ry: float, start: float, end: float
    ) -> None:
        """Draw a stroke along an ellipse; angles in degrees, clockwise from the right, as y grows downwards."""
        self.line(fill, width, *_arc(x, y, rx, ry, start, end))

    def pie(self, fill: Color, x: float, y: float, rx: float, ry: float, start: float, end: float) -> None:
        """Fill the area between an arc and its chord."""
        self.poly(fill, *_arc(x, y, rx, ry, start, end))

    def box(self, fill: Color, x0: float, y0: float, x1: float, y1: float, round_: float = 0.0) -> None:
        """Draw a rectangle by its corners, optionally with rounded ones."""
        if not round_:
            self.poly(fill, (x0, y0), (x1, y0), (x1, y1), (x0, y1))
            return
        corners = (
            (x1 - round_, y0 + round_, -90),
            (x1 - round_, y1 - round_, 0),
            (x0 + round_, y1 - round_, 90),
            (x0 + round_, y0 + round_, 180),
        )
        self.poly(fill, *(p for x, y, a in corners for p in _arc(x, y, round_, round_, a, a + 90, steps=5)))

    def blob(self, fill: Color, *points: Point) -> None:
        """Draw a smooth closed curve through the points."""
        self.poly(fill, *_smooth(points))


def _arc(x: float, y: float, rx: float, ry: float, start: float, end: float, steps: int = 28) -> list[Point]:
    angles = [math.radians(start + (end - start) * i / steps) for i in range(steps + 1)]
    return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles]


def _smooth(points: Sequence[Point], steps: int = 6) -> list[Point]:
    """Return a closed Catmull-Rom spline."""
    n = len(points)
    out = []
    for i in range(n):
        p0, p1, p2, p3 = (points[(i + k) % n] for k in (-1, 0, 1, 2))
        for s in range(steps):
            t = s / steps
            out.append((_cubic(p0[0], p1[0], p2[0], p3[0], t), _cubic(p0[1], p1[1], p2[1], p3[1], t)))
    return out


def _cubic(a: float, b: float, c: float, d: float, t: float) -> float:
    return 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t * t + (3 * b - a - 3 * c + d) * t**3)


@dataclass(frozen=True)
class Drawing:
    """One object: how to draw it, the colors it comes in, how large it usually is (share of the image's width)."""

    name: str
    draw: Callable[[Pen], None]
    colors: tuple[str, ...]
    span: tuple[float, float]
    tilts: bool
    flips: bool

    def shapes(self, color: str, pose: float) -> tuple[Shape, ...]:
        pen = Pen(COLORS[color], pose)
        self.draw(pen)
        return tuple(pen.shapes)


CATALOGUE: dict[str, Drawing] = {}
"""Object name to drawing, filled by the ``drawing`` decorator."""

LARGE, MEDIUM, SMALL = (0.36, 0.48), (0.27, 0.38), (0.21, 0.30)


def drawing(
    name: str,
    colors: str,
    span: tuple[float, float] = MEDIUM,
    *,
    tilts: bool = False,
    flips: bool = True,
) -> Callable[[Callable[[Pen], None]], Callable[[Pen], None]]:
    """Register a drawing; ``tilts``: it may lie at an angle; ``flips``: its mirror image is as good."""

    def register(draw: Callable[[Pen], None]) -> Callable[[Pen], None]:
        CATALOGUE[name] = Drawing(name, draw, tuple(colors.split()), span, tilts, flips)
        return draw

    return register
