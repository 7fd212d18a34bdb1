"""One decoding step drawn as the paper does: logits before and after the edit, evidence against reference below.

A row describes a candidate: ``token, z, dmrr, b, s, shift, z_after, before_winner, after_winner``, and ``word`` where the
token is known to be a piece of a longer one; ``b`` is None for an unregistered candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.errors import InputError
from reweigh.results.charts import CHANGED, INK, MUTED, PAPER, svg
from reweigh.results.html import Html

Candidate = Mapping[str, Any]
LIMIT, FEW = 8, 3
"""Candidates of a drawing, and of one for a narrow screen."""
HEIGHT = 3.6


def select(rows: Sequence[Candidate], limit: int = LIMIT) -> list[Candidate]:
    """The highest logits, and both winners always."""
    if not rows:
        raise InputError("a mechanism plot needs at least one candidate")
    order = sorted(rows, key=lambda row: -float(row["z"]))
    return [row for i, row in enumerate(order) if i < limit or _role(row)]


def draw_step(panel: Any, rows: Sequence[Candidate], *, narrow: bool = False, limit: int = LIMIT) -> None:
    """Draw logits before (filled) and after (open) the edit; each arrow is ``beta * s`` long.

    Winners before and after have the colour of a changed word and say which they are.
    """
    shown = select(rows, limit)
    if narrow:
        shown = next(few for most in (FEW, 2, 1, 0) if len(few := select(rows, most)) <= FEW)
    for index, row in enumerate(shown):
        colour = CHANGED if _role(row) else INK
        before, after, shift = float(row["z"]), float(row["z_after"]), float(row["shift"])
        mark = "s" if row.get("before_winner") else "o"
        if shift > 0:
            panel.annotate("", (index, after), (index, before),
                           arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.3, "shrinkB": 4})  # fmt: skip
            panel.plot([index], [after], mark, mfc=PAPER, mec=colour, ms=7)
            panel.annotate(f"−{shift:.2f}", (index, (before + after) / 2), (9, 0),
                           textcoords="offset points", va="center", fontsize=8, color=colour)  # fmt: skip
        panel.plot([index], [before], mark, color=colour, ms=7)
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
    """The drawing of a step as an SVG that stands alone."""
    return svg(lambda panel, _: draw_step(panel, rows, limit=limit), alt=step_alt_text(rows), height=HEIGHT)


def step_alt_text(rows: Sequence[Candidate], limit: int = LIMIT) -> str:
    """The drawing as alternative text."""
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
    seen = f"{1e3 * float(row['dmrr']):#.3g}"
    if row.get("b") is None:
        return [seen, "not registered"]
    sign = "<" if float(row["dmrr"]) < float(row["b"]) else "≥"
    return [f"{seen} {sign} {1e3 * float(row['b']):#.3g}", f"s = {float(row['s']):.3f}"]


def _name(row: Candidate) -> str:
    return visible(str(row.get("word") or row["token"]), 13)


def _role(row: Candidate) -> str:
    if row.get("after_winner"):
        return "written"
    return "was ahead" if row.get("before_winner") else ""


def visible(token: str, limit: int = 40) -> str:
    """A token's text as one can print it: word-start marks removed, blanks and control characters shown."""
    text = token.lstrip(" ▁Ġ") or "␣"
    text = "".join("⏎" if c == "\n" else c if c.isprintable() else "·" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"
