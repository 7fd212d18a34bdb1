"""Draw the first picture of README and docs: one scene, described by the model alone and with ReWEIGH.

python scripts/before_after.py    # writes docs/images/before-after-light.svg and -dark.svg
"""

from __future__ import annotations

import base64
import io
import textwrap
from html import escape
from pathlib import Path
from typing import Any

import reweigh
from reweigh import world
from reweigh.world.scenes import Scene, scene
from reweigh.world.vocabulary import mentions

IMAGES = Path(__file__).parents[1] / "docs" / "images"
INDEX = 129
WIDTH, HEIGHT, SIDE = 800, 350, 290
COLORS = {
    "light": {
        "ink": "#1f2328",
        "soft": "#59636e",
        "wrong": ("#b42025", "#fde5e3"),
        "right": ("#1f5fbf", "#e2ecfb"),
        "frame": "#d1d9e0",
    },
    "dark": {
        "ink": "#e6edf3",
        "soft": "#9198a1",
        "wrong": ("#ff9a93", "#552125"),
        "right": ("#86b4ff", "#1d3358"),
        "frame": "#3d444d",
    },
}
"""Truth is filled as in marks.css: a color and its wash."""


def marked_lines(text: str, there: set[str], changed: set[str], colors: dict[str, Any]) -> list[str]:
    """Wrap a description into SVG lines; objects that are absent, and those that only this text names, are filled."""

    def style(color: str, wash: str) -> str:
        halo = f'stroke="{wash}" stroke-width="8" stroke-linejoin="round" paint-order="stroke"'
        return f'fill="{color}" font-weight="600" {halo}'

    marks = {
        text[start:end]: style(*colors["wrong" if kind not in there else "right"])
        for (start, end, _, kind) in mentions(text)
        if kind not in there or kind in changed
    }
    lines = []
    for line in textwrap.wrap(text, 56):
        shown = escape(line)
        for word, style in marks.items():
            shown = shown.replace(word, f"<tspan {style}>{word}</tspan>")
        lines.append(shown)
    return lines


def draw(one: Scene, alone: str, with_it: str, colors: dict[str, Any]) -> str:
    """Return the picture as SVG."""
    buffer = io.BytesIO()
    one.image().resize((SIDE * 2, SIDE * 2)).save(buffer, "JPEG", quality=88)
    photo = base64.b64encode(buffer.getvalue()).decode("ascii")
    kinds = [{kind for (_, _, _, kind) in mentions(text)} for text in (alone, with_it)]
    rows, y = [], 46
    for title, text, changed in (
        ("The model alone", alone, set()),
        ("The same model with ReWEIGH", with_it, kinds[1] - kinds[0]),
    ):
        rows.append(
            f'<text x="340" y="{y}" fill="{colors["soft"]}" font-size="14" font-weight="600">{title}</text>'
        )
        for line in marked_lines(text, set(one.objects), changed, colors):
            y += 23
            rows.append(f'<text x="340" y="{y}">{line}</text>')
        y += 46
    body = "\n".join(rows)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" \
font-family="system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif" font-size="16" \
fill="{colors["ink"]}">
<image x="20" y="30" width="{SIDE}" height="{SIDE}" href="data:image/jpeg;base64,{photo}"/>
<rect x="20" y="30" width="{SIDE}" height="{SIDE}" fill="none" stroke="{colors["frame"]}"/>
{body}
</svg>
"""


def main() -> None:
    one = scene("evaluation", INDEX)
    rw = reweigh.attach(*reweigh.load(world.path()), table=world.table_path())
    texts = [
        reweigh.decoder("greedy", rw.model, rw.processor).describe(one.image()),
        rw.describe(one.image()),
    ]
    for name, colors in COLORS.items():
        (IMAGES / f"before-after-{name}.svg").write_text(draw(one, *texts, colors), encoding="utf-8")


if __name__ == "__main__":
    main()
