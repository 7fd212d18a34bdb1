"""Scenes as files: their pictures, and what is in them and where, for scoring and for an oracle detector."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from reweigh.files.artifacts import replacing
from reweigh.files.outputs import write_output
from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import SIZE, Scene
from reweigh.world.vocabulary import surfaces

BOXES, TRUTH, WORDS = "boxes.jsonl", "truth.jsonl", "words.txt"


def draw(scene: Scene, folder: Path) -> Path:
    """Write the scene's PNG to ``folder`` under its id, at the model's own size, unless it is there; return its path."""
    path = folder / f"{scene.id}.png"
    if not path.is_file():
        with replacing(path) as temporary:
            scene.image().save(temporary, "PNG")
    return path


def words_of(name: str) -> list[str]:
    """List the single words that name an object in a text: its forms, or their last word ("glass" for a wine glass)."""
    return list(dict.fromkeys(form.split()[-1] for pair in surfaces(name) for form in pair))


def write_boxes(scenes: Iterable[Scene], folder: Path) -> None:
    """Write the truth of pictures beside them.

    ``boxes.jsonl`` holds the boxes of each picture's objects, ``truth.jsonl`` their names and forms as the benchmark
    ``objects`` reads them, and ``words.txt`` the words of all objects.
    """
    rows, truth = [], []
    for scene in scenes:
        objects = [
            {"words": words_of(name), "box": [edge / SIZE for edge in box]} for name, box in scene.boxes()
        ]
        image = draw(scene, folder).name
        rows.append(json.dumps({"image": image, "objects": objects}) + "\n")
        forms = {
            name: [form for pair in surfaces(name) for form in pair][1:] for name in sorted(scene.objects)
        }
        truth.append(json.dumps({"image": image, "objects": list(forms), "synonyms": forms}) + "\n")
    known = sorted({word for name in CATALOGUE for word in words_of(name)})
    write_output(folder / WORDS, "".join(f"{word}\n" for word in known))
    write_output(folder / BOXES, "".join(rows))
    write_output(folder / TRUTH, "".join(truth))
