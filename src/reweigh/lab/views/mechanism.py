"""One decoding step: logits before and after the edit, drawn as in the paper, and evidence laid over the picture.

A row describes a candidate: ``token, z, dmrr, b, s, shift, z_after, before_winner, after_winner``, and ``word`` where the
token is known to be a piece of a longer one; ``b`` is None for an unregistered candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from reweigh.errors import InputError
from reweigh.lab.views.charts import CHANGED, INK, MUTED, PAPER, svg
from reweigh.lab.views.html import Html, part

if TYPE_CHECKING:
    from PIL.Image import Image

Candidate = Mapping[str, Any]
LIMIT, FEW = 8, 3
"""Candidates of a drawing, and of one for a narrow screen."""
HEIGHT = 3.6


def select(rows: Sequence[Candidate], limit: int = LIMIT) -> list[Candidate]:
    """Return the candidates with the highest logits, and always both winners."""
    if not rows:
        raise InputError("a mechanism plot needs at least one candidate")
    order = sorted(rows, key=lambda row: -float(row["z"]))
    return [row for i, row in enumerate(order) if i < limit or _role(row)]


def draw_step(panel: Any, rows: Sequence[Candidate], *, narrow: bool = False, limit: int = LIMIT) -> None:
    """Draw logits before (filled) and after (open) the edit; each arrow is ``beta * s`` long.

    Winners before and after have the color of a changed word and say which they are.
    """
    shown = select(rows, limit)
    if narrow:
        shown = next(few for most in (FEW, 2, 1, 0) if len(few := select(rows, most)) <= FEW)
    for index, row in enumerate(shown):
        color = CHANGED if _role(row) else INK
        before, after, shift = float(row["z"]), float(row["z_after"]), float(row["shift"])
        mark = "s" if row.get("before_winner") else "o"
        if shift > 0:
            panel.annotate("", (index, after), (index, before),
                           arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.3, "shrinkB": 4})  # fmt: skip
            panel.plot([index], [after], mark, mfc=PAPER, mec=color, ms=7)
            panel.annotate(f"−{shift:.2f}", (index, (before + after) / 2), (9, 0),
                           textcoords="offset points", va="center", fontsize=8, color=color)  # fmt: skip
        panel.plot([index], [before], mark, color=color, ms=7)
    panel.set_xticks(range(len(shown)), [_label(row) for row in shown])
    for tick, row in zip(panel.get_xticklabels(), shown, strict=True):
        tick.set(color=CHANGED if _role(row) else INK, fontsize=8)
    panel.set_xlim(-0.6, len(shown) - 0.4)
    panel.margins(y=0.15)
    panel.grid(axis="x", visible=False)
    panel.set_ylabel("logit")
    explained = ["filled: before, open: after", "below each word: evidence against reference, in 10⁻³"]
    panel.set_xlabel(("\n" if narrow else "; ").join(explained), color=MUTED, fontsize=8)


def step_svg(rows: Sequence[Candidate], *, limit: int = LIMIT) -> Html:
    """Return the drawing of a step as an SVG that stands alone."""
    return svg(partial(draw_step, rows=rows, limit=limit), alt=step_alt_text(rows, limit), height=HEIGHT)


def step_alt_text(rows: Sequence[Candidate], limit: int = LIMIT) -> str:
    """Return the drawing as alternative text."""
    each = "; ".join(
        f"{_name(row)} {float(row['z']):.2f}"
        + (f", lowered to {float(row['z_after']):.2f}" if float(row["shift"]) > 0 else "")
        + (f", {role}" if (role := _role(row)) else "")
        for row in select(rows, limit)
    )
    return f"Logits of the candidates before and after the edit: {each}"


def _label(row: Candidate) -> str:
    piece = visible(str(row["token"]), 13)
    notes = [_role(row), "" if piece == _name(row) else f"piece “{piece}”"]
    return "\n".join([_name(row), ", ".join(note for note in notes if note), *_evidence(row)])


def _evidence(row: Candidate) -> list[str]:
    if row.get("dmrr") is None:
        return ["no evidence"]
    seen = _digits(row["dmrr"])
    if row.get("b") is None:
        return [seen, "not registered"]
    sign = "<" if float(row["dmrr"]) < float(row["b"]) else "≥"
    return [f"{seen} {sign} {_digits(row['b'])}", f"s = {float(row['s']):.3f}"]


def _digits(evidence: Any) -> str:
    """Format with three digits, also if the last is a zero."""
    return f"{1e3 * float(evidence):#.3g}".rstrip(".")


def _name(row: Candidate) -> str:
    return visible(str(row.get("word") or row["token"]), 13)


def _role(row: Candidate) -> str:
    if row.get("after_winner"):
        return "emitted"
    return "suppressed" if row.get("before_winner") else ""


def visible(token: str, limit: int = 40) -> str:
    """Return a token's text as one can print it: word-start marks removed, blanks and control characters shown."""
    text = token.lstrip(" ▁Ġ") or "␣"
    text = "".join("⏎" if c == "\n" else c if c.isprintable() else "·" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


WARM = ((0.0, (70, 20, 90)), (0.35, (190, 45, 80)), (0.7, (245, 140, 50)), (1.0, (255, 240, 160)))
"""Colors of a heat map by share of its range."""
COVER = 0.75
"""How much the strongest evidence hides the picture, 0 to 1."""


def heatmap(
    picture: Image,
    values: Any,
    *,
    low: float | None = None,
    high: float | None = None,
) -> bytes:
    """Lay a grid of evidence over the whole picture it was read from and return PNG bytes.

    Rows of the grid run from top to bottom; NaN marks missing evidence. ``low`` is shown as nothing and ``high``
    strongest; by default they are the smallest and the largest value.
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
    above = np.nan_to_num(grid, nan=floor) - floor
    share = np.clip(above / span, 0, 1) if span > 0 else np.zeros_like(grid)
    smooth = pillow.fromarray(share.astype(np.float32)).resize(picture.size, pillow.Resampling.BICUBIC)
    weight = np.clip(np.asarray(smooth, dtype=np.float64), 0, 1)[..., None]
    base = np.asarray(picture.convert("RGB"), dtype=np.float64)
    # The picture is dimmed where nothing is seen, so that the warm colors stand out on any content.
    gray = base.mean(axis=2, keepdims=True)
    dimmed = 0.45 * base + 0.25 * gray
    blended = dimmed * (1 - COVER * weight) + warm(weight) * COVER * weight
    painted = pillow.fromarray(np.clip(np.rint(blended), 0, 255).astype(np.uint8))
    data = BytesIO()
    painted.save(data, "PNG")
    return data.getvalue()


def warm(value: Any) -> Any:
    """Return the colors of shares of a heat map's range."""
    import numpy as np

    shares = [share for share, _ in WARM]
    channels = [
        np.interp(value[..., 0], shares, [float(color[channel]) for _, color in WARM]) for channel in range(3)
    ]
    return np.stack(channels, axis=-1)


def heat_scale(low: float, high: float) -> Html:
    """Return the colors of a heat map from ``low`` to ``high``, as a strip."""
    stops = ", ".join(f"rgb{color} {share:.0%}" for share, color in WARM)
    return part("heat_scale", stops, f"{low:.3g}", f"{high:.3g}")
