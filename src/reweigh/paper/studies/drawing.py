"""The mechanism figure: the picture, the evidence of two words painted on it, and the logits of one step below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from reweigh.results.charts import CHANGED, INK, MUTED, chart

LIMIT = 6


def draw_mechanism(
    rows: Sequence[Mapping[str, Any]],
    shown: Any,
    painted: Sequence[bytes],
    words: Sequence[str],
    path: Path,
) -> None:
    """Draw logits before (filled) and after (open), arrows of length beta*s, and evidence against reference below each."""
    from PIL import Image

    pictures = [("the picture", shown)]
    pictures += [
        (f"evidence of “{word}”", Image.open(BytesIO(data)))
        for word, data in zip(words, painted, strict=False)
    ]
    with chart(path, height=5.4, rows=2, columns=3, height_ratios=[1, 1.35]) as panels:
        for panel in panels[0]:
            panel.axis("off")
        for panel, (title, image) in zip(panels[0], pictures, strict=False):
            panel.imshow(image)
            panel.set_title(title, loc="center", fontsize=9)
        grid = panels[1, 0].get_gridspec()
        for panel in panels[1]:
            panel.remove()
        _draw_logits(panels[0, 0].figure.add_subplot(grid[1, :]), select(rows))


def select(rows: Sequence[Mapping[str, Any]], limit: int = LIMIT) -> list[Mapping[str, Any]]:
    """The highest logits, and both winners always."""
    best = sorted(rows, key=lambda row: -row["z"])
    return [row for i, row in enumerate(best) if i < limit or row["before_winner"] or row["after_winner"]]


def _draw_logits(panel: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    for index, row in enumerate(rows):
        colour = CHANGED if row["after_winner"] or row["before_winner"] else INK
        mark = "s" if row["before_winner"] else "o"
        panel.plot([index], [row["z"]], mark, color=colour, ms=7)
        if row["shift"] > 0:
            panel.annotate(
                "",
                (index, row["z_after"]),
                (index, row["z"]),
                arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.3, "shrinkB": 4},
            )
            panel.plot([index], [row["z_after"]], mark, mfc="white", mec=colour, ms=7)
            panel.annotate(f"−{row['shift']:.2f}", (index, (row["z"] + row["z_after"]) / 2), (9, 0),
                           textcoords="offset points", va="center", fontsize=8, color=colour)  # fmt: skip
    labels = [f"{row['token']}{_role(row)}\n{_evidence(row)}" for row in rows]
    panel.set_xticks(range(len(rows)), labels)
    for tick, row in zip(panel.get_xticklabels(), rows, strict=True):
        tick.set_color(CHANGED if row["after_winner"] or row["before_winner"] else INK)
        tick.set_fontsize(8)
    panel.set_xlim(-0.6, len(rows) - 0.4)
    panel.margins(y=0.15)
    panel.grid(axis="x", visible=False)
    panel.set_ylabel("logit")
    panel.set_xlabel("below each word: evidence against reference, in 10⁻³", color=MUTED, fontsize=8)


def _role(row: Mapping[str, Any]) -> str:
    if row["after_winner"]:
        return " (written)"
    return " (was ahead)" if row["before_winner"] else ""


def _evidence(row: Mapping[str, Any]) -> str:
    seen = f"{1e3 * row['dmrr']:.2f}"
    if row["b"] is None:
        return f"{seen}\nnot registered"
    return f"{seen} {'<' if row['dmrr'] < row['b'] else '≥'} {1e3 * row['b']:.2f}\ns = {row['s']:.2f}"
