"""Scenes as picture files, for tools that read files."""

from __future__ import annotations

from pathlib import Path

from reweigh.files.artifacts import replacing
from reweigh.world.scenes import Scene


def draw(scene: Scene, folder: Path) -> Path:
    """The scene's PNG in ``folder`` under its id, at the model's own size; written if it is not there."""
    path = folder / f"{scene.id}.png"
    if not path.is_file():
        with replacing(path) as temporary:
            scene.image().save(temporary, "PNG")
    return path
