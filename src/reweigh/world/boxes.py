"""Where the objects of scenes lie, as files for an oracle detector: the truth itself, never an input of a fair method."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from reweigh.files.artifacts import write_text
from reweigh.world.drawings import CATALOGUE
from reweigh.world.pictures import draw
from reweigh.world.scenes import SIZE, Scene
from reweigh.world.vocabulary import surfaces

BOXES, WORDS = "boxes.jsonl", "words.txt"


def words_of(name: str) -> list[str]:
    """Single words by which texts name an object: its forms, of several words the last ("glass" for a wine glass)."""
    return list(dict.fromkeys(form.split()[-1] for pair in surfaces(name) for form in pair))


def write_boxes(scenes: Iterable[Scene], folder: Path) -> None:
    """Write ``boxes.jsonl``, a line for each picture with its objects, and ``words.txt``, the words of all objects."""
    rows = []
    for scene in scenes:
        objects = [
            {"words": words_of(name), "box": [edge / SIZE for edge in box]} for name, box in scene.boxes()
        ]
        rows.append(json.dumps({"image": draw(scene, folder).name, "objects": objects}) + "\n")
    known = sorted({word for name in CATALOGUE for word in words_of(name)})
    write_text(folder / WORDS, "".join(f"{word}\n" for word in known))
    write_text(folder / BOXES, "".join(rows))
