"""Small random models for tests: six families on disk with real processors, more as bare models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from transformers import AutoModelForImageTextToText

from checkpoints.families import BLOCKS, FAMILIES, VOCABULARY, build
from reweigh.families.processor import load_processor

__all__ = ["BLOCKS", "FAMILIES", "VOCABULARY", "build", "load", "picture", "prompt"]


def load(path: Path) -> tuple[Any, Any]:
    """The model in evaluation mode and its processor, through the classes a user calls."""
    return AutoModelForImageTextToText.from_pretrained(path).eval(), load_processor(path)


def picture(seed: int = 0, size: tuple[int, int] = (56, 56)) -> Image.Image:
    """A random picture of (width, height) pixels, in blocks so that resizing keeps its content."""
    width, height = size
    blocks = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize((width, height), Image.Resampling.NEAREST)


def prompt(processor: Any, text: str = "Please describe this image in detail.", images: int = 1) -> str:
    """The family's prompt with a placeholder for each image; the text itself without a chat template."""
    if processor.chat_template is None:
        return text
    parts = [{"type": "image"} for _ in range(images)] + [{"type": "text", "text": text}]
    turns = [{"role": "user", "content": parts}]
    return str(processor.apply_chat_template(turns, add_generation_prompt=True))
