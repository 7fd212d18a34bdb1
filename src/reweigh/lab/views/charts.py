"""One style for all figures: color-blind-safe, with intervals, for files and for pages.

``chart`` writes a PNG and an SVG file; ``inline`` returns the markup of a drawing for a page, laid out for wide and for
narrow screens, in colors that follow the page's light or dark scheme. ``dots``, ``lines`` and ``scatter`` draw estimates
with their intervals. Color is never the only difference: marks differ too. Blue and red
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

from reweigh.files.artifacts import sha256_text
from reweigh.files.outputs import replacing_output
from reweigh.lab.estimate import Estimate
from reweigh.lab.views.html import Html, part

INK, MUTED, GRID, PAPER = "#1d232b", "#68727f", "#e3e0d8", "#ffffff"
CHANGED = "#8a5a00"
"""What the edit changed, as on the pages."""
COLORS = ("#009e73", "#cc79a7", INK, "#e69f00", "#7a3e9d", MUTED, "#5d6b00")
"""Distinguishable with any kind of color vision; after Okabe and Ito, without blue and red."""
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
"""Variables of the page's style, by the color of a file: a page in dark mode gives them other values."""
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
LEGEND_ROWS = 20
"""Names below each other in the legend beside a chart."""
Value = float | Estimate | None


@contextmanager
def chart(
    path: Path, *, height: float = 3.2, rows: int = 1, columns: int = 1, **shared: Any
) -> Iterator[Any]:
    """Yield one panel, or an array of them, then write ``path`` with the endings .png and .svg.

    ``height`` is in inches; ``shared`` are further arguments of ``subplots``, such as ``sharex`` or ``width_ratios``.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        canvas = Figure(figsize=(WIDTHS["wide"], height), layout="constrained")
        yield canvas.subplots(rows, columns, **shared)
        for ending, meta in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            with replacing_output(path.with_name(f"{path.name}.{ending}")) as temporary:
                canvas.savefig(temporary, format=ending, dpi=200, metadata=meta)


Draw = Callable[..., None]
"""Draws on a panel; ``narrow`` tells it that the screen is a narrow one."""


def inline(draw: Draw, *, alt: str, height: float = 3.2) -> Html:
    """Return a drawing as markup for a page, once for wide and once for narrow screens.

    ``alt`` is the drawing in words, for readers who do not see it; ``height`` is in inches.
    """
    drawn = [(name, svg(draw, alt=alt, narrow=name == "narrow", height=height)) for name in WIDTHS]
    return part("drawings", drawn)


def svg(draw: Draw, *, alt: str, narrow: bool = False, height: float = 3.2) -> Html:
    """Return one drawing as an SVG element, with its words as text; it can also stand alone as a file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**STYLE, "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has it
        canvas = Figure(figsize=(WIDTHS["narrow" if narrow else "wide"], height), layout="constrained")
        draw(canvas.subplots(), narrow=narrow)
        file = io.StringIO()
        canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _for_page(file.getvalue(), alt)


def _for_page(text: str, alt: str) -> Html:
    """Return only the SVG element, with the page's colors and with ids that no other drawing has."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    prefix = sha256_text(alt + text)[:8]
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", text)
    for color, variable in VARIABLES.items():
        text = text.replace(color, f"var({variable}, {color})")
    text = text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return Html(text.replace("<svg", f'<svg role="img" aria-label="{Html.escape(alt)}"', 1).rstrip())


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
        color, mark = COLORS[number % len(COLORS)], MARKS[number % len(MARKS)]
        color = color if len(series) > 1 else INK
        shift = (number - (len(series) - 1) / 2) * 0.7 / max(len(series), 1)
        for index, name in enumerate(names):
            if name in values and (middle := _middle(values[name])) is not None:
                y = index + shift
                panel.plot(_ends(values[name]), [y, y], color=color, lw=1.8, solid_capstyle="butt")
                panel.plot([middle], [y], mark, color=color, ms=5, label=title if len(series) > 1 else None)
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
        color, mark = COLORS[number % len(COLORS)], MARKS[number % len(MARKS)]
        shown = [
            (x, value) for x, value in sorted(found, key=lambda one: one[0]) if _middle(value) is not None
        ]
        xs = [x for x, _ in shown]
        panel.plot(xs, [_middle(value) for _, value in shown], f"-{mark}", color=color, ms=4, lw=1.5,
                   label=title if len(series) > 1 else None)  # fmt: skip
        ends = [_ends(value) for _, value in shown]
        if any(low != high for low, high in ends):
            low, high = zip(*ends, strict=True)
            panel.fill_between(xs, low, high, color=color, alpha=0.15, lw=0)
    if level is not None and level[1] is not None:
        panel.axhline(level[1], color=MUTED, lw=1.1, ls="--")
        panel.annotate(level[0], (1.01, level[1]), xycoords=("axes fraction", "data"), va="center",
                       fontsize=7.5, color=MUTED)  # fmt: skip
    if marked is not None and marked[1] is not None:
        panel.plot(*marked, "o", ms=12, mfc="none", mec=INK, mew=1.3)
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    _legend(panel)


class Marks(NamedTuple):
    """Named points joined by a line, points that are only marked, one to ring, and whether to emphasize them."""

    name: str
    points: Sequence[tuple[Value, Value]]
    others: Sequence[tuple[float, float]] = ()
    ringed: tuple[float, float] | None = None
    chief: bool = False


def scatter(
    panel: Any,
    series: Sequence[Marks],
    *,
    across: str = "",
    up: str = "",
    level: tuple[str, float, float] | None = None,
    narrow: bool = False,
) -> None:
    """Draw named points with the intervals of both coordinates; ratios across that differ much get a logarithmic axis.

    ``level`` is a named point to compare with, marked by a star and lines through it. Missing values are left out.
    """
    ratios: list[float] = []
    for number, one in enumerate(series):
        turn, place = divmod(number, len(COLORS))  # no two share mark and color
        mark = MARKS[(place + turn) % len(MARKS)]
        color = CHANGED if one.chief else COLORS[place]
        known = [pair for pair in one.points if None not in map(_middle, pair)]
        xs, ys = [_estimate(x).number for x, _ in known], [_estimate(y).number for _, y in known]
        for (x, y), right, high in zip(known, xs, ys, strict=True):
            panel.plot(_ends(x), [high, high], color=color, lw=0.9, alpha=0.6)
            panel.plot([right, right], _ends(y), color=color, lw=0.9, alpha=0.6)
        for point in one.others:
            panel.plot(*point, mark, color=color, ms=3.5, alpha=0.45, mew=0)
        if known:
            panel.plot(xs, ys, f"-{mark}", color=color, ms=7 if one.chief else 5, lw=1.2, label=one.name)
        if one.ringed is not None:
            panel.plot(*one.ringed, "o", ms=11, mfc="none", mec=color, mew=1.2)
        ratios += xs
    if level is not None:
        name, x, y = level
        panel.axvline(x, color=MUTED, lw=0.8, ls="--")
        panel.axhline(y, color=MUTED, lw=0.8, ls="--")
        panel.plot([x], [y], "*", color=INK, ms=9, label=name)
    if ratios and min(ratios) > 0 and max(ratios) / min(ratios) > FACTOR:
        log_axis(panel)
    panel.margins(x=0.1, y=0.1)
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    if panel.get_legend_handles_labels()[0]:  # none if every value is missing
        where = "outside lower left" if narrow else "outside right upper"
        columns = 2 if narrow else math.ceil(len(series) / LEGEND_ROWS)
        panel.figure.legend(loc=where, fontsize=7.5, ncols=columns)


def log_axis(panel: Any) -> None:
    """Make the axis across logarithmic, with plain numbers at its decades."""
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter("")


def alt_text(what: str, values: Mapping[str, Value], digits: int = 1, *, signed: bool = False) -> str:
    """Return the alternative text of a drawing: what it shows, then every number."""
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
