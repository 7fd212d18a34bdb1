"""One style for all figures: colour-blind-safe, with intervals, for files and for pages.

``chart`` writes a PNG and an SVG file; ``inline`` gives the markup of a drawing for a page, laid out for wide and for
narrow screens, in colours that follow the page's light or dark scheme. ``dots``, ``lines`` and ``points`` draw estimates
with their intervals, ``fronts`` lines of named points. Colour is never the only difference: marks differ too. Blue and red
mean good and bad on every page, so no chart uses them for anything else.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reweigh.estimate import Estimate
from reweigh.files.artifacts import sha256_text
from reweigh.files.outputs import replacing_output
from reweigh.results.html import Html, element, escape, join

INK, MUTED, GRID, PAPER = "#1d232b", "#68727f", "#e3e0d8", "#ffffff"
CHANGED = "#8a5a00"
"""What the edit changed, as on the pages."""
COLOURS = ("#009e73", "#cc79a7", INK, "#e69f00", "#7a3e9d", MUTED, "#5d6b00")
"""Distinguishable with any kind of colour vision; after Okabe and Ito, without blue and red."""
MARKS = ("o", "s", "^", "D", "v", "P", "X")
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PAPER: "--card",
    CHANGED: "--mark",
    "#009e73": "--one",
    "#7a3e9d": "--two",
    "#5d6b00": "--three",
}
"""Variables of the page's style, by the colour of a file: a page in dark mode gives them other values."""
WIDTHS = {"wide": 7.2, "narrow": 3.6}
"""Inches across, by the kind of screen; files are wide."""
STYLE = {
    "svg.hashsalt": "reweigh",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}
FACTOR = 6.0
"""An axis of positive numbers is logarithmic if the largest is more than this many times the smallest."""
Value = float | Estimate | None


@contextmanager
def chart(
    path: Path, *, height: float = 3.2, rows: int = 1, columns: int = 1, **shared: Any
) -> Iterator[Any]:
    """Yield one panel, or an array of them, then write ``path`` with the endings .png and .svg.

    Args:
        path: The files' path without an ending.
        height: Inches down.
        rows: Panels below each other.
        columns: Panels beside each other.
        shared: Passed on to ``subplots``: ``sharex``, ``sharey``, ``width_ratios`` ...
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        canvas = Figure(figsize=(WIDTHS["wide"], height), layout="constrained")
        yield canvas.subplots(rows, columns, **shared)
        for ending, meta in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            with replacing_output(path.with_name(f"{path.name}.{ending}")) as temporary:
                canvas.savefig(temporary, format=ending, dpi=200, metadata=meta)


def inline(draw: Callable[[Any, bool], None], *, alt: str, height: float = 3.2) -> Html:
    """A drawing as markup for a page, once for wide and once for narrow screens.

    Args:
        draw: Receives a panel, and whether the screen is narrow.
        alt: The drawing in words, for readers who do not see it.
        height: Inches down.
    """
    drawn = [
        element("div", svg(draw, alt=alt, narrow=name == "narrow", height=height), class_=name)
        for name in WIDTHS
    ]
    return join(drawn)


def svg(draw: Callable[[Any, bool], None], *, alt: str, narrow: bool = False, height: float = 3.2) -> Html:
    """One drawing as an SVG element, with its words as text; it can also stand alone as a file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**STYLE, "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has it
        canvas = Figure(figsize=(WIDTHS["narrow" if narrow else "wide"], height), layout="constrained")
        draw(canvas.subplots(), narrow)
        file = io.StringIO()
        canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _for_page(file.getvalue(), alt)


def _for_page(text: str, alt: str) -> Html:
    """Only the SVG element: its colours from the page's style, its ids unlike those of any other drawing."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    prefix = sha256_text(alt + text)[:8]
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable}, {colour})")
    text = text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return Html(text.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1).rstrip())


def dots(
    panel: Any,
    series: Mapping[str, Mapping[str, Value]],
    *,
    zero: bool = False,
    label: str = "",
    digits: int | None = None,
) -> None:
    """Draw estimates as dots with whiskers, one line for each name and one mark for each series.

    ``zero`` adds the line of no difference, ``digits`` the numbers as text. A missing value leaves a gap.
    """
    names = list(dict.fromkeys(name for one in series.values() for name in one))
    for number, (title, values) in enumerate(series.items()):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        colour = colour if len(series) > 1 else INK
        shift = (number - (len(series) - 1) / 2) * 0.7 / max(len(series), 1)
        for index, name in enumerate(names):
            if name in values and (middle := _middle(values[name])) is not None:
                y = index + shift
                panel.plot(_ends(values[name]), [y, y], color=colour, lw=1.8, solid_capstyle="butt")
                panel.plot([middle], [y], mark, color=colour, ms=5, label=title if len(series) > 1 else None)
                if digits is not None:
                    panel.annotate(_estimate(values[name]).text(digits, signed=zero), (1.01, y), va="center",
                                   xycoords=("axes fraction", "data"), fontsize=8, color=MUTED)  # fmt: skip
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)
    if zero:
        panel.axvline(0, color=INK, lw=0.9)
    panel.set_xlabel(label)
    _legend(panel)


def lines(
    panel: Any,
    series: Mapping[str, Sequence[tuple[float, Value]]],
    *,
    across: str = "",
    up: str = "",
    level: tuple[str, float | None] | None = None,
    marked: tuple[float, float | None] | None = None,
) -> None:
    """Draw lines over a common axis with bands for their intervals.

    ``level`` is a named value drawn as a dashed line across; ``marked`` is a point to circle. Missing values are left out.
    """
    for number, (title, found) in enumerate(series.items()):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        shown = [
            (x, value) for x, value in sorted(found, key=lambda one: one[0]) if _middle(value) is not None
        ]
        xs = [x for x, _ in shown]
        panel.plot(xs, [_middle(value) for _, value in shown], f"-{mark}", color=colour, ms=4, lw=1.5,
                   label=title if len(series) > 1 else None)  # fmt: skip
        ends = [_ends(value) for _, value in shown]
        if any(low != high for low, high in ends):
            low, high = zip(*ends, strict=True)
            panel.fill_between(xs, low, high, color=colour, alpha=0.15, lw=0)
    if level is not None and level[1] is not None:
        panel.axhline(level[1], color=MUTED, lw=1.1, ls="--")
        panel.annotate(level[0], (0.995, level[1]), (0, 2), xycoords=("axes fraction", "data"),
                       textcoords="offset points", ha="right", va="bottom", fontsize=7.5, color=MUTED)  # fmt: skip
    if marked is not None and marked[1] is not None:
        panel.plot(*marked, "o", ms=12, mfc="none", mec=INK, mew=1.3)
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    _legend(panel)


class NamedPoint(NamedTuple):
    """A named point, and whether the chart is about it."""

    name: str
    x: Value
    y: Value
    chief: bool = False


def points(panel: Any, series: Sequence[NamedPoint], *, across: str = "", up: str = "") -> None:
    """Draw named points with the intervals of both coordinates; an axis of ratios grows by factors."""
    known = [
        (one, x, y)
        for one in series
        if (x := _middle(one.x)) is not None and (y := _middle(one.y)) is not None
    ]
    xs = [x for _, x, _ in known]
    if xs and min(xs) > 0 and max(xs) / min(xs) > FACTOR:
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
    texts = []
    for number, (one, x, y) in enumerate(known):
        colour = CHANGED if one.chief else INK
        panel.plot(_ends(one.x), [y, y], color=colour, lw=0.9, alpha=0.6)
        panel.plot([x, x], _ends(one.y), color=colour, lw=0.9, alpha=0.6)
        mark = MARKS[number % len(MARKS)]
        panel.plot([x], [y], mark, color=colour, ms=7 if one.chief else 5)
        texts.append((x, y, one.name, colour, "bold" if one.chief else "normal"))
    panel.margins(x=0.12, y=0.12)
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    _place_names(panel, texts)


class Front(NamedTuple):
    """A named line through some points, the others it was chosen from, one to ring, and whether the chart is about it."""

    name: str
    points: Sequence[tuple[float, float]]
    others: Sequence[tuple[float, float]] = ()
    ringed: tuple[float, float] | None = None
    chief: bool = False


def fronts(
    panel: Any, series: Sequence[Front], *, across: str, up: str, level: tuple[str, float, float]
) -> None:
    """Draw named lines through points; ``level`` is a named point that all are held against, with lines through it."""
    texts = []
    for number, one in enumerate(series):
        # no two share mark and colour
        round_, place = divmod(number, len(COLOURS))
        mark = MARKS[(place + round_) % len(MARKS)]
        colour = CHANGED if one.chief else COLOURS[place]
        xs, ys = zip(*one.points, strict=True)
        panel.plot(*zip(*one.others, strict=True), mark, color=colour, ms=3.5, alpha=0.45, mew=0)
        panel.plot(xs, ys, f"-{mark}", color=colour, ms=5, lw=2.2 if one.chief else 1.2)
        if one.ringed is not None:
            panel.plot(*one.ringed, "o", ms=11, mfc="none", mec=colour, mew=1.2)
        named = one.ringed or one.points[0]
        texts.append((*named, one.name, colour, "bold" if one.chief else "normal"))
    name, x, y = level
    panel.axvline(x, color=MUTED, lw=0.8, ls="--")
    panel.axhline(y, color=MUTED, lw=0.8, ls="--")
    panel.plot([x], [y], "*", color=INK, ms=9)
    panel.margins(x=0.1, y=0.1)
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    _place_names(panel, [*texts, (x, y, name, INK, "bold")])


def _place_names(panel: Any, texts: Sequence[tuple[float, float, str, str, str]]) -> None:
    """Write each name beside its point, moved away with a leader line where it would cover another."""
    figure = panel.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # names are placed for the axes as they are now
    scale = figure.dpi / 72
    frame = panel.get_window_extent()
    spots = [panel.transData.transform((x, y)) for x, y, *_ in texts]
    taken = [_Box(x - 5 * scale, y - 5 * scale, x + 5 * scale, y + 5 * scale) for x, y in spots]
    for (x, y, name, colour, weight), (right, up) in zip(texts, spots, strict=True):
        measured = panel.text(0, 0, name, fontsize=8, fontweight=weight)
        extent = measured.get_window_extent()
        measured.remove()
        wide, tall = extent.width + 2 * scale, extent.height + 2 * scale
        for left, bottom, away in _candidates(right, up, wide, tall, scale):  # noqa: B007
            box = _Box(left, bottom, left + wide, bottom + tall)
            if box.inside(frame) and not any(box.meets(other) for other in taken):
                break
        taken.append(box)
        arrow = {"arrowstyle": "-", "color": MUTED, "lw": 0.6} if away else None
        offset = ((left - right) / scale, (bottom + tall / 2 - up) / scale)
        panel.annotate(name, (x, y), offset, textcoords="offset points", va="center", ha="left", color=colour,
                       fontsize=8, fontweight=weight, arrowprops=arrow)  # fmt: skip


class _Box(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: _Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.top <= other.bottom or other.top <= self.bottom)

    def inside(self, frame: Any) -> bool:
        return bool(
            self.left >= frame.x0
            and self.right <= frame.x1
            and self.bottom >= frame.y0
            and self.top <= frame.y1
        )


def _candidates(
    x: float, y: float, wide: float, tall: float, scale: float
) -> Iterator[tuple[float, float, bool]]:
    """Places for a name, the nearest first: beside the point, then further and further away."""
    gap = 7 * scale
    for left in (x + gap, x - gap - wide):
        yield left, y - tall / 2, False
    for distance in range(1, 16):
        for side in (1, -1):
            for left in (x + gap, x - wide / 2, x - gap - wide, x + 5 * gap, x - 5 * gap - wide):
                yield left, y + side * distance * tall - tall / 2, True


def alt_text(what: str, values: Mapping[str, Value], digits: int = 1, *, signed: bool = False) -> str:
    """Alternative text of a drawing: what it shows, then every number."""
    told = (f"{name} {_estimate(value).text(digits, signed=signed)}" for name, value in values.items())
    return f"{what}: {'; '.join(told)}"


def _estimate(value: Value) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate(value)


def _middle(value: Value) -> float | None:
    return _estimate(value).value


def _ends(value: Value) -> tuple[float, float]:
    one = _estimate(value)
    ends = (one.low, one.high) if one.bounded else (one.value, one.value)
    low, high = (math.nan if end is None else end for end in ends)
    return low, high


def _legend(panel: Any) -> None:
    """Name the series above the panel, where they cover no mark."""
    handles, titles = panel.get_legend_handles_labels()
    if chosen := dict(zip(titles, handles, strict=True)):
        corner = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "borderaxespad": 0.2}
        panel.legend(chosen.values(), chosen, fontsize=7.5, ncols=len(chosen), columnspacing=1.0,
                     handletextpad=0.4, handlelength=1.4, **corner)  # fmt: skip
