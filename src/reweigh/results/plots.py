"""Small plots as SVG text, needing nothing else.

``mechanism_plot`` draws one decoding step as the paper does; ``interval_plot`` draws estimates with their intervals;
``line_plot`` draws lines over a common axis. Colours follow the page's light or dark scheme and have fall-backs, so the
same text also stands alone as a file. Blue and red mean good and bad on every page, so no plot uses them for anything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from reweigh.errors import InputError
from reweigh.results import svg
from reweigh.results.html import Html
from reweigh.results.svg import BROWN, INK, LINE, LINES, MUTED, PAPER

if TYPE_CHECKING:
    from reweigh.results.tables import Estimate

SLENDER = 500
"""Pixels below which a drawing is laid out for a telephone."""


def mechanism_plot(
    rows: Sequence[Mapping[str, Any]], *, title: str = "", limit: int = 8, slender: bool = False
) -> Html:
    """Draw the logits of one step before (filled) and after (open) the edit; each arrow spans ``beta * s``.

    Each row has ``token, z, dmrr, b, deficit, s, shift, z_after, before_winner, after_winner``, and ``word`` where the
    token is known to be a piece of a longer one; ``b`` is None for an unregistered candidate. The ``limit`` highest logits
    are shown, and both winners always. Under each candidate stands its evidence against its reference in units of 10^-3.
    The winners before and after the edit have the colour of a changed word, and say which they are. A slender drawing, for
    a telephone, has three candidates.
    """
    if not rows:
        raise InputError("a mechanism plot needs at least one candidate")
    shown = _select_few(rows) if slender else _select(rows, limit)
    wide, left = (96, 52) if slender else (104, 52)
    top, bottom = 46, 138 if slender else 122
    width, height = left + wide * len(shown) + 16, 288 + bottom
    values = [float(row[key]) for row in shown for key in ("z", "z_after")]
    low, high, ticks = svg.axis(min(values), max(values))

    def level(value: float) -> float:
        return top + (high - value) / (high - low) * (height - top - bottom)

    parts = [svg.text(left, 22, title, weight=600, anchor="start", size=14)] if title else []
    for tick in ticks:
        parts.append(svg.line(left, level(tick), width - 16, level(tick), LINE))
        parts.append(svg.text(left - 8, level(tick) + 4, f"{tick:g}", anchor="end", fill=MUTED))
    parts.append(svg.text(14, (top + height - bottom) / 2, "logit", fill=MUTED, turn=True))
    for index, row in enumerate(shown):
        parts += _candidate(row, left + wide * (index + 0.5), level, height - bottom, 11 if slender else 12)
    legend = ("filled: before, open: after", "below: evidence against reference, in 10⁻³")
    for index, words in enumerate(reversed(legend if slender else ("; ".join(legend),))):
        parts.append(svg.text(left, height - 8 - 16 * index, words, anchor="start", fill=MUTED))
    return svg.svg(width, height, parts, _step_in_words(shown))


def _select(rows: Sequence[Mapping[str, Any]], limit: int) -> list[Mapping[str, Any]]:
    order = sorted(rows, key=lambda row: -float(row["z"]))
    return [
        row for i, row in enumerate(order) if i < limit or row.get("before_winner") or row.get("after_winner")
    ]


def _select_few(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Both winners and the highest of the others, three in all."""
    return next(found for limit in (3, 2, 1, 0) if len(found := _select(rows, limit)) <= 3)


def _step_in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """The drawing as alternative text."""
    each = "; ".join(
        f"{_name(row)} {float(row['z']):.2f}"
        + (f", lowered to {float(row['z_after']):.2f}" if float(row["shift"]) > 0 else "")
        + (f", {role}" if (role := _role(row)) else "")
        for row in rows
    )
    return f"Logits of the candidates before and after the edit: {each}"


def _name(row: Mapping[str, Any]) -> str:
    return visible(str(row.get("word") or row["token"]), 13)


def _role(row: Mapping[str, Any]) -> str:
    if row.get("after_winner"):
        return "written"
    return "was ahead" if row.get("before_winner") else ""


def _candidate(row: Mapping[str, Any], x: float, level: Any, floor: float, size: int) -> list[str]:
    role = _role(row)
    colour = BROWN if role else INK
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
    strong = 700 if role else 500
    parts.append(svg.text(x, floor + 26, _name(row), weight=strong, fill=colour, size=13, mono=True))
    piece = visible(str(row["token"]), 13)
    notes = [role, *([] if piece == _name(row) else [f"piece “{piece}”"])]
    said = ", ".join(note for note in notes if note)
    parts.append(svg.text(x, floor + 43, said, fill=colour if role else MUTED, size=11))
    below = enumerate(_evidence(row))
    parts += [svg.text(x, floor + 62 + 17 * i, line, fill=MUTED, size=size) for i, line in below]
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
    rows: Sequence[tuple[str, Estimate]],
    *,
    title: str = "",
    zero: bool = False,
    digits: int = 1,
    width: int = 720,
) -> Html:
    """Draw estimates as dots with whiskers, one per line; ``zero`` is for differences: a line at 0, numbers with signs.

    A narrow drawing has the names above the lines, and the numbers beside them if there is room.
    """
    if not rows:
        raise InputError("an interval plot needs at least one row")
    slender = width < SLENDER
    numbers = [_estimate(estimate, digits, signed=zero) for _, estimate in rows]
    longest = max(len(name) for name, _ in rows)
    stacked = max(len(name) + len(label) for (name, _), label in zip(rows, numbers, strict=True)) > width / 7
    lift = 18 if slender and stacked else 0
    left, right, tall = (14, 14, 48 + lift) if slender else (max(190, 7 * longest + 14), 150, 30)
    top = 34 if title else 10
    floor = top + tall * len(rows)
    known = [estimate for _, estimate in rows if all(math.isfinite(part) for part in estimate)]
    ends = [part for estimate in known for part in estimate] + ([0.0] if zero else [])
    low, high, ticks = svg.axis(min(ends, default=0.0), max(ends, default=1.0))

    def across(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - right)

    parts = [svg.text(0, 18, title, weight=600, anchor="start", size=14)] if title else []
    spans = [
        (top + tall * i + 22 + lift, top + tall * (i + 1) - 2) for i in range(len(rows))
    ]  # below the names
    for start, end in spans if slender else [(top, floor)]:
        parts += [svg.line(across(tick), start, across(tick), end, LINE) for tick in ticks]
        parts += [svg.line(across(0), start, across(0), end, INK, 1.2)] if zero else []
    parts += [svg.text(across(tick), floor + 20, f"{tick:g}", fill=MUTED) for tick in ticks]
    labels = []
    for index, ((name, estimate), label) in enumerate(zip(rows, numbers, strict=True)):
        base = top + tall * index
        y = base + (34 + lift if slender else tall / 2)
        parts.append(
            svg.text(0, base + 14, name, anchor="start")
            if slender
            else svg.text(left - 14, y + 4, name, anchor="end")
        )
        if estimate not in known:
            continue
        parts.append(svg.line(across(estimate.low), y, across(estimate.high), y, INK, 2.4))
        parts.append(svg.circle(across(estimate.value), y, INK, INK))
        parts.append(
            svg.text(width, base + 14 + lift, label, anchor="end", fill=MUTED)
            if slender
            else svg.text(width - right + 14, y + 4, label, anchor="start", fill=MUTED)
        )
        labels.append(f"{name} {label}")
    words = "; ".join(labels) or "none of them is known"
    return svg.svg(width, floor + 34, parts, f"{title or 'Estimates with 95% intervals'}: {words}")


def _estimate(estimate: Estimate, digits: int, *, signed: bool) -> str:
    """A value and its interval in figures."""
    form = f"{'+' if signed else ''}.{digits}f"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def line_plot(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: str,
    up: str,
    level: tuple[str, float] | None = None,
    width: int = 720,
) -> Html:
    """Draw named lines of (x, y) points; ``level`` is a named value of y that goes all across.

    The names stand beside the lines, in a narrow drawing below them.
    """
    points = [point for line in lines.values() for point in line]
    if not points:
        raise InputError("a line plot needs at least one point")
    slender = width < SLENDER
    left, right, top = (48, 12, 16) if slender else (64, 110, 16)
    bottom = 48 + (22 * len(lines) if slender else 0)
    height = 272 + bottom
    heights = [y for _, y in points] + ([level[1]] if level else [])
    low, high, ticks = svg.axis(min(heights), max(heights))
    first, last, marks = svg.axis(min(x for x, _ in points), max(x for x, _ in points))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - first) / (last - first) * (width - left - right),
            top + (high - y) / (high - low) * (height - top - bottom),
        )

    parts = []
    floor = height - bottom
    for tick in ticks:
        y = place(first, tick)[1]
        parts += [svg.line(left, y, width - right, y, LINE)]
        parts.append(svg.text(left - 8, y + 4, f"{tick:g}", anchor="end", fill=MUTED))
    for mark in marks:
        parts.append(svg.text(place(mark, low)[0], floor + 20, f"{mark:g}", fill=MUTED))
    parts.append(svg.text((left + width - right) / 2, floor + 40, across, fill=MUTED))
    parts.append(svg.text(12 if slender else 16, (top + floor) / 2, up, fill=MUTED, turn=True))
    if level is not None:
        y = place(first, level[1])[1]
        parts.append(svg.line(left, y, width - right, y, MUTED, 1.6))
        parts.append(svg.text(left + 6, y - 6, level[0], anchor="start", fill=MUTED))
    for number, (name, line) in enumerate(lines.items()):
        colour, dash = LINES[number % len(LINES)]
        where = [place(*point) for point in sorted(line)]
        parts += [svg.line(*one, *other, colour, 2.0, dash) for one, other in pairwise(where)]
        parts += [svg.circle(*one, colour, colour) for one in where]
        x, y = (left + 6, floor + 60) if slender else (width - right + 18, top + 12)
        parts.append(svg.line(x - 10, y + 22 * number, x + 10, y + 22 * number, colour, 2.0, dash))
        parts.append(svg.circle(x, y + 22 * number, colour, colour))
        parts.append(svg.text(x + 16, y + 4 + 22 * number, name, anchor="start"))
    return svg.svg(width, height, parts, _lines_in_words(lines, across, up))


def _lines_in_words(lines: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str) -> str:
    ends = []
    for name, line in lines.items():
        if line:
            (start, first), (end, last) = min(line), max(line)
            ends.append(f"{name} from {first:.4g} at {start:g} to {last:.4g} at {end:g}")
    return f"{up} over {across}: {'; '.join(ends)}"


def visible(token: str, limit: int = 40) -> str:
    """A token's text as one can print it: word-start marks gone, blanks and control characters shown."""
    text = token.lstrip(" ▁Ġ") or "␣"
    text = "".join("⏎" if c == "\n" else c if c.isprintable() else "·" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"
