"""Small plots as SVG text or PNG bytes, needing nothing but NumPy and Pillow.

``mechanism_plot`` draws one decoding step as the paper does; ``interval_plot`` draws estimates with their
intervals; ``line_plot`` draws lines over a common axis; ``heatmap`` lays evidence over the picture it was read
from. SVG colours follow the page's light or dark scheme and have fall-backs, so the same text also stands alone
as a file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from reweigh.errors import InputError
from reweigh.report import svg
from reweigh.report.html import Html, element
from reweigh.report.svg import BLUE, BROWN, INK, LINE, MUTED, PAPER, RED

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.report.tables import Estimate

LINES = (BLUE, RED, BROWN, INK, MUTED)


def mechanism_plot(rows: Sequence[Mapping[str, Any]], *, title: str = "", limit: int = 8) -> Html:
    """Draw the logits of one step before (filled) and after (open) the edit; each arrow spans ``beta * s``.

    Each row has ``token, z, dmrr, b, deficit, s, shift, z_after, before_winner, after_winner``; ``b`` is None
    for an unregistered candidate. The ``limit`` highest logits are shown, and both winners always. Under each
    candidate stands its evidence against its reference in units of 10^-3. Red is the winner that lost, blue
    the winner after the edit.
    """
    if not rows:
        raise InputError("a mechanism plot needs at least one candidate")
    shown = _select(rows, limit)
    wide, top, bottom, left = 104, 46, 104, 52
    width, height = left + wide * len(shown) + 16, 392
    values = [float(row[key]) for row in shown for key in ("z", "z_after")]
    low, high, ticks = svg.axis(min(values), max(values))

    def level(value: float) -> float:
        return top + (high - value) / (high - low) * (height - top - bottom)

    parts = [svg.text(left, 22, title, weight=600, anchor="start", size=14)] if title else []
    for tick in ticks:
        parts.append(svg.line(left, level(tick), width - 16, level(tick), LINE))
        parts.append(svg.text(left - 8, level(tick) + 4, f"{tick:g}", anchor="end", fill=MUTED))
    parts.append(svg.text(14, (top + height - bottom) / 2, "logit", fill=MUTED, turn=True))
    for place, row in enumerate(shown):
        parts += _candidate(row, left + wide * (place + 0.5), level, height - bottom)
    parts.append(
        svg.text(
            left, height - 8, "below each: evidence against reference, in 10⁻³", anchor="start", fill=MUTED
        )
    )
    return svg.svg(width, height, parts, "Logits of the candidates before and after the edit")


def _select(rows: Sequence[Mapping[str, Any]], limit: int) -> list[Mapping[str, Any]]:
    order = sorted(rows, key=lambda row: -float(row["z"]))
    return [
        row for i, row in enumerate(order) if i < limit or row.get("before_winner") or row.get("after_winner")
    ]


def _candidate(row: Mapping[str, Any], x: float, level: Any, floor: float) -> list[str]:
    colour = BLUE if row.get("after_winner") else RED if row.get("before_winner") else INK
    before, after = level(float(row["z"])), level(float(row["z_after"]))
    shift = float(row["shift"])
    parts = []
    if shift > 0:
        tip = after - 6
        if tip - before > 8:
            parts.append(svg.line(x, before, x, tip - 5, colour, 1.8))
            parts.append(svg.arrowhead(x, tip, colour))
        parts.append(svg.circle(x, after, PAPER, colour))
        parts.append(svg.text(x + 11, (before + after) / 2 + 4, f"−{shift:.2f}", anchor="start", fill=colour))
    parts.append(svg.circle(x, before, colour, colour))
    strong = 700 if colour != INK else 500
    parts.append(
        svg.text(
            x, floor + 26, visible(str(row["token"]), 13), weight=strong, fill=colour, size=13, mono=True
        )
    )
    parts += [svg.text(x, floor + 46 + 17 * i, line, fill=MUTED) for i, line in enumerate(_evidence(row))]
    return parts


def _evidence(row: Mapping[str, Any]) -> list[str]:
    if row.get("dmrr") is None:
        return ["no evidence"]
    seen = f"{1e3 * float(row['dmrr']):.2f}"
    if row.get("b") is None:
        return [f"{seen} · 10⁻³", "not registered"]
    sign = "<" if float(row["dmrr"]) < float(row["b"]) else "≥"
    return [f"{seen} {sign} {1e3 * float(row['b']):.2f}", f"s = {float(row['s']):.3f}"]


def interval_plot(
    rows: Sequence[tuple[str, Estimate]], *, title: str = "", zero: bool = False, digits: int = 1
) -> Html:
    """Draw estimates as dots with whiskers, one per line; ``zero`` adds the line of no difference."""
    if not rows:
        raise InputError("an interval plot needs at least one row")
    left, right, tall, top = 190, 150, 30, 34 if title else 10
    width, height = 720, top + tall * len(rows) + 34
    ends = [
        end
        for _, estimate in rows
        for end in (estimate.low, estimate.high, estimate.value)
        if math.isfinite(end)
    ]
    low, high, ticks = svg.axis(
        min([*ends, 0.0] if zero else ends, default=0.0), max([*ends, 0.0] if zero else ends, default=1.0)
    )

    def across(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - right)

    floor = top + tall * len(rows)
    parts = [svg.text(0, 18, title, weight=600, anchor="start", size=14)] if title else []
    for tick in ticks:
        parts.append(svg.line(across(tick), top, across(tick), floor, LINE))
        parts.append(svg.text(across(tick), floor + 20, f"{tick:g}", fill=MUTED))
    if zero:
        parts.append(svg.line(across(0), top, across(0), floor, INK, 1.2))
    for place, (name, estimate) in enumerate(rows):
        y = top + tall * (place + 0.5)
        parts.append(svg.text(left - 14, y + 4, name, anchor="end"))
        if not all(math.isfinite(part) for part in estimate):
            continue
        parts.append(svg.line(across(estimate.low), y, across(estimate.high), y, BLUE, 2.4))
        parts.append(svg.circle(across(estimate.value), y, BLUE, BLUE))
        label = f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
        parts.append(svg.text(width - right + 14, y + 4, label, anchor="start", fill=MUTED))
    return svg.svg(width, height, parts, title or "Estimates with 95% intervals")


def line_plot(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: str,
    up: str,
    level: tuple[str, float] | None = None,
) -> Html:
    """Draw named lines of (x, y) points; ``level`` is a named value of y that goes all across."""
    points = [point for line in lines.values() for point in line]
    if not points:
        raise InputError("a line plot needs at least one point")
    width, height, left, right, top, bottom = 720, 320, 64, 110, 16, 48
    heights = [y for _, y in points] + ([level[1]] if level else [])
    low, high, ticks = svg.axis(min(heights), max(heights))
    first, last, marks = svg.axis(min(x for x, _ in points), max(x for x, _ in points))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - first) / (last - first) * (width - left - right),
            top + (high - y) / (high - low) * (height - top - bottom),
        )

    parts = []
    for tick in ticks:
        y = place(first, tick)[1]
        parts += [svg.line(left, y, width - right, y, LINE)]
        parts.append(svg.text(left - 8, y + 4, f"{tick:g}", anchor="end", fill=MUTED))
    for mark in marks:
        parts.append(svg.text(place(mark, low)[0], height - bottom + 20, f"{mark:g}", fill=MUTED))
    parts.append(svg.text((left + width - right) / 2, height - 8, across, fill=MUTED))
    parts.append(svg.text(16, (top + height - bottom) / 2, up, fill=MUTED, turn=True))
    if level is not None:
        y = place(first, level[1])[1]
        parts.append(svg.line(left, y, width - right, y, MUTED, 1.6))
        parts.append(svg.text(left + 6, y - 6, level[0], anchor="start", fill=MUTED))
    for number, (name, line) in enumerate(lines.items()):
        colour = LINES[number % len(LINES)]
        where = [place(*point) for point in sorted(line)]
        parts += [svg.line(*one, *other, colour, 2.0) for one, other in pairwise(where)]
        parts += [svg.circle(*one, colour, colour) for one in where]
        parts.append(svg.circle(width - right + 18, top + 12 + 22 * number, colour, colour))
        parts.append(svg.text(width - right + 30, top + 16 + 22 * number, name, anchor="start"))
    return svg.svg(width, height, parts, f"{up} over {across}")


def scatter_plot(points: Sequence[tuple[str, float, float]], *, across: str, up: str) -> Html:
    """Draw named points, each with its name beside it."""
    if not points:
        raise InputError("a scatter plot needs at least one point")
    width, height, left, right, top, bottom = 720, 380, 64, 120, 16, 48
    first, last, marks = svg.axis(min(x for _, x, _ in points), max(x for _, x, _ in points))
    low, high, ticks = svg.axis(min(y for *_, y in points), max(y for *_, y in points))
    parts = []
    for tick in ticks:
        y = top + (high - tick) / (high - low) * (height - top - bottom)
        parts += [svg.line(left, y, width - right, y, LINE)]
        parts.append(svg.text(left - 8, y + 4, f"{tick:g}", anchor="end", fill=MUTED))
    for mark in marks:
        x = left + (mark - first) / (last - first) * (width - left - right)
        parts.append(svg.text(x, height - bottom + 20, f"{mark:g}", fill=MUTED))
    parts.append(svg.text((left + width - right) / 2, height - 8, across, fill=MUTED))
    parts.append(svg.text(16, (top + height - bottom) / 2, up, fill=MUTED, turn=True))
    taken: list[tuple[float, float]] = []
    for name, value, level in sorted(points, key=lambda point: point[2]):
        x = left + (value - first) / (last - first) * (width - left - right)
        y = top + (high - level) / (high - low) * (height - top - bottom)
        colour = BLUE if name == "ReWEIGH" else MUTED
        parts.append(svg.circle(x, y, colour, colour))
        label = y + 4
        while any(abs(label - other) < 13 and abs(x - where) < 90 for where, other in taken):
            label -= 13  # names of neighbours do not cover each other
        taken.append((x, label))
        parts.append(svg.text(x + 9, label, name, anchor="start", weight=600 if name == "ReWEIGH" else 400))
    return svg.svg(width, height, parts, f"{up} over {across}")


def heatmap(
    picture: Image, values: Any, *, low: float | None = None, high: float | None = None, cover: float = 0.75
) -> bytes:
    """Lay a grid of evidence over the picture it was read from and return PNG bytes.

    Args:
        picture: The image, whose whole area the grid covers.
        values: Two-dimensional numbers, first index from top to bottom; NaN where there is no evidence.
        low: Value shown as nothing; the smallest by default.
        high: Value shown strongest; the largest by default.
        cover: How much the strongest place hides the picture, 0 to 1.
    """
    import numpy as np
    from PIL import Image as pillow

    grid = np.asarray(values, dtype=np.float64)
    if grid.ndim != 2 or grid.size == 0:
        raise InputError(f"a heat map needs a grid of rows and columns, not shape {grid.shape}")
    finite = grid[np.isfinite(grid)]
    floor = float(finite.min()) if low is None and finite.size else low or 0.0
    roof = float(finite.max()) if high is None and finite.size else high or 0.0
    span = roof - floor
    share = (
        np.zeros_like(grid) if span <= 0 else np.clip((np.nan_to_num(grid, nan=floor) - floor) / span, 0, 1)
    )
    smooth = pillow.fromarray(share.astype(np.float32)).resize(picture.size, pillow.Resampling.BICUBIC)
    weight = np.clip(np.asarray(smooth, dtype=np.float64), 0, 1)[..., None]
    base = np.asarray(picture.convert("RGB"), dtype=np.float64)
    # The picture is dimmed where nothing is seen, so that the warm colours stand out on any content.
    grey = base.mean(axis=2, keepdims=True)
    dimmed = 0.45 * base + 0.25 * grey
    blended = dimmed * (1 - cover * weight) + _warm(weight) * cover * weight
    buffer = BytesIO()
    pillow.fromarray(np.clip(np.rint(blended), 0, 255).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


WARM = ((0.0, (70, 20, 90)), (0.35, (190, 45, 80)), (0.7, (245, 140, 50)), (1.0, (255, 240, 160)))
"""Colours of a heat map by share of its range."""


def heat_scale(low: float, high: float) -> Html:
    """The colours of a heat map from ``low`` to ``high``, for below it."""
    stops = ", ".join(f"rgb{colour} {place:.0%}" for place, colour in WARM)
    strip = element("i", style=f"background: linear-gradient(to right, {stops})")
    ends = (element("span", f"{end:.3g}") for end in (low, high))
    return element("div", next(ends), strip, next(ends), class_="scale muted")


def _warm(share: Any) -> Any:
    import numpy as np

    places = [place for place, _ in WARM]
    channels = [
        np.interp(share[..., 0], places, [float(colour[channel]) for _, colour in WARM])
        for channel in range(3)
    ]
    return np.stack(channels, axis=-1)


def visible(token: str, limit: int = 40) -> str:
    """A token's text as one can print it: word-start marks gone, blanks and control characters shown."""
    text = token.lstrip(" ▁Ġ") or "␣"
    text = "".join("⏎" if c == "\n" else c if c.isprintable() else "·" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"
