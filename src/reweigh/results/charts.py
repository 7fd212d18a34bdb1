"""One style for all figures of studies: colour-blind-safe, with intervals, as PNG and SVG. Needs matplotlib.

``chart`` yields panels to draw on and writes both files with the same bytes for the same content; ``dots`` and
``lines`` draw estimates with their intervals on a panel. Colour is never the only difference: marks differ too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reweigh.errors import MissingExtraError
from reweigh.files.artifacts import replacing
from reweigh.results.tables import Estimate

INK, MUTED, GRID = "#1d232b", "#68727f", "#e3e0d8"
CHANGED = "#8a5a00"
"""What the edit changed, as on the pages."""
COLOURS = ("#009e73", "#cc79a7", "#1d232b", "#e69f00", "#7a3e9d", "#68727f", "#5d6b00")
"""Told apart with any kind of colour vision; after Okabe and Ito, without the blue and red that mean good and bad."""
MARKS = ("o", "s", "^", "D", "v", "P", "X")
WIDTH = 7.2
"""Inches across, as wide as a page's column of text."""
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
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}
Value = float | Estimate


@contextmanager
def chart(
    path: Path, *, height: float = 3.2, rows: int = 1, columns: int = 1, **shared: Any
) -> Iterator[Any]:
    """Yield one panel, or an array of them, and write ``path`` with the endings .png and .svg afterwards.

    Args:
        path: Where, without an ending.
        height: Inches down.
        rows: Panels below each other.
        columns: Panels beside each other.
        shared: Passed on to ``subplots``: ``sharex``, ``sharey``, ``width_ratios`` ...
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a figure", "plot", "matplotlib") from error
    with rc_context(STYLE):
        canvas = Figure(figsize=(WIDTH, height), layout="constrained")
        yield canvas.subplots(rows, columns, **shared)
        for ending, meta in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            with replacing(path.with_name(f"{path.name}.{ending}")) as temporary:
                canvas.savefig(temporary, format=ending, dpi=200, metadata=meta)


def dots(
    panel: Any, series: Mapping[str, Mapping[str, Value]], *, zero: bool = False, label: str = ""
) -> None:
    """Draw estimates as dots with whiskers, one line for each name and one mark for each series.

    ``zero`` adds the line of no difference. A value that is not finite leaves a gap.
    """
    names = list(dict.fromkeys(name for one in series.values() for name in one))
    for number, (title, values) in enumerate(series.items()):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        shift = (number - (len(series) - 1) / 2) * 0.7 / max(len(series), 1)
        for index, name in enumerate(names):
            if name in values and math.isfinite(middle := _middle(values[name])):
                y = index + shift
                panel.plot(_ends(values[name]), [y, y], color=colour, lw=1.8, solid_capstyle="butt")
                panel.plot([middle], [y], mark, color=colour, ms=5, label=title if len(series) > 1 else None)
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

    ``level`` is a named value that goes all across, dashed; ``marked`` is a point circled. One without value is left out.
    """
    for number, (title, points) in enumerate(series.items()):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        shown = [(x, value) for x, value in sorted(points) if math.isfinite(_middle(value))]
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


def _middle(value: Value) -> float:
    return value.value if isinstance(value, Estimate) else float(value)


def _ends(value: Value) -> tuple[float, float]:
    if isinstance(value, Estimate) and math.isfinite(value.low) and math.isfinite(value.high):
        return value.low, value.high
    return (_middle(value),) * 2


def _legend(panel: Any) -> None:
    """Name the series above the panel, where no mark can lie below them."""
    handles, titles = panel.get_legend_handles_labels()
    if chosen := dict(zip(titles, handles, strict=True)):
        corner = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "borderaxespad": 0.2}
        panel.legend(chosen.values(), chosen, fontsize=7.5, ncols=len(chosen), columnspacing=1.0,
                     handletextpad=0.4, handlelength=1.4, **corner)  # fmt: skip
