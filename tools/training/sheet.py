"""Contact sheets: scenes side by side with their descriptions, and all drawings with their names."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache

from PIL import Image, ImageDraw, ImageFont

from reweigh.world.drawings import CATALOGUE
from reweigh.world.render import sprite
from reweigh.world.scenes import Scene

PAPER, INK = (252, 252, 250), (40, 40, 46)
LINE = 15


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def scene_sheet(
    scenes: Sequence[Scene], texts: Sequence[str], *, size: int = 224, columns: int = 4, lines: int = 9
) -> Image.Image:
    """Scenes in a grid, each with its text below."""
    columns = max(1, min(columns, len(scenes)))
    width, height = size + 16, size + 26 + lines * LINE
    rows = -(-len(scenes) // columns)
    sheet = Image.new("RGB", (columns * width, rows * height), PAPER)
    draw = ImageDraw.Draw(sheet)
    for number, (scene, text) in enumerate(zip(scenes, texts, strict=True)):
        x, y = (number % columns) * width + 8, (number // columns) * height + 8
        sheet.paste(scene.image(size), (x, y))
        draw.text((x, y + size + 2), f"{scene.id}  {scene.kind}", fill=(120, 120, 128), font=_font(11))
        wrapped = textwrap.wrap(text, width=max(12, round(size / 6.4)))[:lines]
        for k, line in enumerate(wrapped):
            draw.text((x, y + size + 18 + k * LINE), line, fill=INK, font=_font(12))
    return sheet


def drawing_sheet(*, size: int = 96, columns: int = 12) -> Image.Image:
    """Every drawing with its name: in its first color, and small, in its last color and another pose."""
    names = tuple(CATALOGUE)
    rows = -(-len(names) // columns)
    sheet = Image.new("RGB", (columns * (size + 16), rows * (size + 26)), (214, 224, 218))
    draw = ImageDraw.Draw(sheet)
    for number, name in enumerate(names):
        x, y = (number % columns) * (size + 16) + 4, (number // columns) * (size + 26) + 4
        look = CATALOGUE[name]
        large = sprite(name, look.colors[0], 0.5, size, 0, False)
        small = sprite(name, look.colors[-1], 0.9, size // 3, 0, look.flips)
        sheet.paste(large, (x, y), large)
        sheet.paste(small, (x + size - 16, y + size - 26), small)
        draw.text((x, y + size + 2), name, fill=INK, font=_font(12))
    return sheet
