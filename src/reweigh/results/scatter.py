"""A scatter plot of named points as SVG: names never cover each other, and an axis of ratios grows by factors.

A name stands beside its point; where there is no room it moves away and a thin line leads back to the point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from reweigh.errors import InputError
from reweigh.results import svg
from reweigh.results.html import Html
from reweigh.results.svg import INK, LINE, MUTED

FACTOR = 6.0
"""Largest over smallest, from which on an axis of positive numbers grows by factors."""
LETTER, TALL = 7.2, 14.0
"""Pixels that a letter of a name takes across and down."""


class Point(NamedTuple):
    """A named point, and whether it is the one that the plot is about."""

    name: str
    x: float
    y: float
    chief: bool = False


class Box(NamedTuple):
    """A rectangle on the drawing."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)


def scatter_plot(points: Sequence[Point], *, across: str, up: str, width: int = 720) -> Html:
    """Draw named points; ``across`` and ``up`` name the axes."""
    if not points:
        raise InputError("a scatter plot needs at least one point")
    height, left, top, bottom = (400 if width > 500 else 460), 52, 16, 46
    frame = Box(left, top, width - 12, height - bottom)
    place_x, marks = _across([point.x for point in points], frame)
    low, high, ticks = svg.axis(min(point.y for point in points), max(point.y for point in points))

    def place_y(value: float) -> float:
        return frame.top + (high - value) / (high - low) * (frame.bottom - frame.top)

    parts = []
    for tick in ticks:
        parts.append(svg.line(frame.left, place_y(tick), frame.right, place_y(tick), LINE))
        parts.append(svg.text(left - 8, place_y(tick) + 4, f"{tick:g}", anchor="end", fill=MUTED))
    parts += [svg.text(place_x(mark), frame.bottom + 20, f"{mark:g}", fill=MUTED) for mark in marks]
    parts.append(svg.text((frame.left + frame.right) / 2, height - 6, across, fill=MUTED))
    parts.append(svg.text(14, (frame.top + frame.bottom) / 2, up, fill=MUTED, turn=True))
    places = [(place_x(point.x), place_y(point.y)) for point in points]
    parts += _named(points, places, frame)
    return svg.svg(width, height, parts, _in_words(points, across, up))


def _across(values: Sequence[float], frame: Box) -> tuple[Callable[[float], float], list[float]]:
    """Where a value lies from left to right, and the values that are written below."""
    least, most = min(values), max(values)
    width = frame.right - frame.left
    if least > 0 and most / least > FACTOR:
        first, last = math.log(least / 1.15), math.log(most * 1.15)
        steps = [step * 10.0**power for power in range(-3, 6) for step in (1, 2, 5)]
        marks = [step for step in steps if first <= math.log(step) <= last]
        return lambda value: frame.left + (math.log(value) - first) / (last - first) * width, marks
    start, end, ticks = svg.axis(least, most)
    return lambda value: frame.left + (value - start) / (end - start) * width, ticks


def _named(points: Sequence[Point], places: Sequence[tuple[float, float]], frame: Box) -> list[str]:
    """The points and their names, the chief one first, so that it stands nearest to its point."""
    taken = [Box(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    lines, dots, names = [], [], []
    order = sorted(range(len(points)), key=lambda i: (not points[i].chief, places[i][1], places[i][0]))
    for i in order:
        (x, y), point = places[i], points[i]
        box, away = _room(x, y, LETTER * len(point.name) + 2, taken, frame)
        taken.append(box)
        colour = INK if point.chief else MUTED
        if away:
            end = min(max(x, box.left), box.right), min(max(y, box.top + 3), box.bottom - 3)
            lines.append(svg.line(x, y, *end, MUTED, 0.7))
        dots.append(svg.circle(x, y, colour, colour))
        weight = 700 if point.chief else 400
        names.append(svg.text(box.left + 1, box.bottom - 3, point.name, anchor="start", weight=weight))
    return [*lines, *dots, *names]


def _room(x: float, y: float, width: float, taken: Sequence[Box], frame: Box) -> tuple[Box, bool]:
    """The nearest free place for a name, and whether it is away from its point."""
    best: tuple[int, Box] | None = None
    for box, away in _tries(x, y, width):
        if box.left < frame.left or box.right > frame.right or box.top < 0 or box.bottom > frame.bottom + 4:
            continue
        covered = sum(box.meets(other) for other in taken)
        if not covered:
            return box, away
        best = (covered, box) if best is None or covered < best[0] else best
    return (best[1], True) if best is not None else (Box(x + 9, y - 9, x + 9 + width, y + 5), False)


def _tries(x: float, y: float, width: float) -> Iterator[tuple[Box, bool]]:
    """Places for a name: beside the point, then around it, ever farther."""
    for left in (x + 9, x - 9 - width):
        yield Box(left, y - TALL / 2, left + width, y + TALL / 2), False
    for distance in range(1, 13):
        for side in (-1, 1):
            middle = y + side * distance * TALL
            for left in (x + 9, x - width / 2, x - 9 - width, x + 40, x - 40 - width):
                yield Box(left, middle - TALL / 2, left + width, middle + TALL / 2), True


def _in_words(points: Sequence[Point], across: str, up: str) -> str:
    """The plot as alternative text."""
    each = "; ".join(f"{point.name} {point.y:.4g} at {point.x:.3g}" for point in points)
    return f"{up} over {across}: {each}"
