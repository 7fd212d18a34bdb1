"""The figures of one part drawn as panels, one for each case, on a logarithmic axis. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reweigh.files.outputs import replacing_output
from reweigh.speed.figures import Figure

INK, MUTED, BLUE, RED = "#1d232b", "#68727f", "#1f5fbf", "#c2282d"


def draw(figures: Sequence[Figure], part: str, path: Path) -> bool:
    """Draw the ratios of one part as SVG; False if it has none."""
    cases: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.part == part and figure.ratio is not None:
            cases.setdefault(figure.case, []).append(figure)
    if not cases:
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    heights = [len(rows) + 1.6 for rows in cases.values()]
    with rc_context({"svg.hashsalt": "reweigh", "font.size": 9, "axes.edgecolor": MUTED}):
        canvas = Canvas(figsize=(7.5, 0.26 * sum(heights) + 0.4), layout="constrained")
        panels = canvas.subplots(len(cases), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
        for panel, (case, rows) in zip(panels, cases.items(), strict=True):
            _panel(panel, case, rows)
        panels[-1].set_xlabel(f"cost, as a multiple of: {next(iter(cases.values()))[0].against}")
        with replacing_output(path) as temporary:
            canvas.savefig(temporary, format="svg", metadata={"Date": None})
    return True


def _panel(panel: Any, case: str, rows: Sequence[Figure]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    panel.set_xscale("log")
    panel.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for part in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
        part(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set_title(case, loc="left", fontsize=9, fontweight="bold", color=INK)
    panel.set_yticks(range(len(rows)), [row.variant for row in rows])
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.grid(axis="x", which="major", color="#e3e0d8", linewidth=0.8)
    panel.axvline(1, color=MUTED, linewidth=0.8)
    for index, row in enumerate(rows):
        value, low, high = (
            (1.0, 1.0, 1.0) if row.ratio is None else (float(part or 0.0) for part in row.ratio.parts)
        )
        colour = {None: INK, True: BLUE, False: RED}[row.within_goal]
        panel.plot([low, high], [index, index], color=colour, linewidth=2)
        panel.plot([value], [index], "o", color=colour, markersize=4)
        end = max(high, row.goal or 0.0)
        panel.annotate(f"  {value:#.3g}", (end, index), va="center", fontsize=8, color=MUTED)
        if row.goal is not None:
            panel.plot([row.goal], [index], "|", color=INK, markersize=11, markeredgewidth=1.6)
    panel.margins(x=0.08)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
