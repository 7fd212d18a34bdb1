"""A sheet of sample pictures: each with its description, and a map for words of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont

import reweigh
from reweigh.families.prompts import build_inputs
from reweigh.images import read_image
from tools.training.photographs.model import COMMON, PROMPT
from tools.training.speaking import reply

SIDE, MAPS, MARGIN, TEXT = 192, 3, 8, 34
HEAT = (220, 40, 30)


def sheet(
    model: Any, processor: Any, paths: Sequence[Path], *, longest: int = 40
) -> tuple[Image.Image, list[str]]:
    """Return the sheet and the descriptions on it; the maps read the last block."""
    page = Image.new(
        "RGB", ((MAPS + 1) * (SIDE + MARGIN) + MARGIN, len(paths) * (SIDE + TEXT + MARGIN)), "white"
    )
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(12)
    texts = []
    for number, path in enumerate(paths):
        picture, top = read_image(path), number * (SIDE + TEXT + MARGIN) + MARGIN
        texts.append(text := reply(model, processor, [picture], [PROMPT], longest=longest)[0])
        small = picture.resize((SIDE, SIDE))
        page.paste(small, (MARGIN, top))
        draw.text((MARGIN, top + SIDE + 2), "\n".join(textwrap.wrap(text, 120)[:2]), fill="black", font=font)
        for column, (word, heat) in enumerate(maps(model, processor, picture, text), 1):
            left = MARGIN + column * (SIDE + MARGIN)
            page.paste(overlay(small, heat), (left, top))
            draw.text((left + 4, top + 3), word, fill="white", font=font, stroke_width=2, stroke_fill="black")
    return page, texts


def maps(model: Any, processor: Any, picture: Image.Image, text: str) -> list[tuple[str, torch.Tensor]]:
    """The first words of a text that are one token and name something, each with its reciprocal ranks as a square."""
    tokens: dict[str, int] = {}
    for word in re.findall(r"[a-z]{3,}", text.lower()):
        ids = processor.tokenizer(" " + word, add_special_tokens=False).input_ids
        if word not in COMMON and len(ids) == 1 and len(tokens) < MAPS:
            tokens[word] = ids[0]
    if not tokens:
        return []
    inputs = build_inputs(model, processor, [picture], [PROMPT])
    found = reweigh.measure(model, inputs, [-1], tokens=list(tokens.values()), locate=list(tokens.values()))[
        0
    ]
    if found is None or found.located is None:  # a prompt with one picture always has them
        return []
    side = round(len(found.positions) ** 0.5)
    return [(word, found.located[0, :, k].reshape(side, side)) for k, word in enumerate(tokens)]


def overlay(picture: Image.Image, heat: torch.Tensor) -> Image.Image:
    """The picture in gray, red where the word ranks high."""
    strength = (heat / heat.max().clamp_min(1e-9)).mul(200).byte().cpu().numpy()
    mask = Image.fromarray(strength).resize(picture.size, Image.Resampling.BILINEAR)
    gray = picture.convert("L").convert("RGB")
    return Image.composite(Image.new("RGB", picture.size, HEAT), gray, mask)
