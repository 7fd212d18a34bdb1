"""The strokes of small SVG plots: axes, lines, marks and words, in colours that follow the page's scheme."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reweigh.results.html import Html, escape

INK = "var(--ink, #1d232b)"
MUTED = "var(--muted, #68727f)"
LINE = "var(--line, #e3e0d8)"
PAPER = "var(--card, #ffffff)"
BROWN = "var(--mark, #8a5a00)"
"""What the edit changed; red and blue are bad and good."""
LINES = (
    ("var(--one, #00766c)", ""),
    ("var(--two, #7a3e9d)", "7 4"),
    (INK, "2 4"),
    (MUTED, "10 3 2 3"),
    ("var(--three, #5d6b00)", "4 2"),
)
"""Colours of lines, each with dashes of its own; they only tell the lines apart."""


def axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Round the range of an axis outward to whole steps and list its ticks; one too narrow to label is widened."""
    size = max(abs(low), abs(high), 1.0)
    span = high - low if high - low > 1e-8 * size else size
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    last += first == last
    return first * step, last * step, [round(i * step, 10) for i in range(first, last + 1)]


def svg(width: float, height: float, parts: Sequence[str], label: str) -> Html:
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(label)}" '
        f'font-family="system-ui, Segoe UI, Roboto, Arial, sans-serif">{"".join(parts)}</svg>'
    )


def paint(colour: str) -> str:
    return f'style="fill:{colour}"'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, thick: float = 1.0, dash: str = "") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    broken = f";stroke-dasharray:{dash}" if dash else ""
    return f'<line {ends} style="stroke:{colour};stroke-width:{thick:g}{broken}"/>'


def arrowhead(x: float, tip: float, colour: str) -> str:
    base = tip - 7
    return f'<path d="M{x - 4:.1f} {base:.1f}L{x + 4:.1f} {base:.1f}L{x:.1f} {tip:.1f}Z" {paint(colour)}/>'


def circle(x: float, y: float, inside: str, edge: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" style="fill:{inside};stroke:{edge};stroke-width:2"/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "middle",
    fill: str = INK,
    size: int = 12,
    weight: int = 400,
    mono: bool = False,
    turn: bool = False,
) -> str:
    family = ' font-family="ui-monospace, Menlo, Consolas, monospace"' if mono else ""
    turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
    position = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f"<text {position}{family}{turned} {paint(fill)}>{escape(words)}</text>"
