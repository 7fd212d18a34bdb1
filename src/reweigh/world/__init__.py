"""The embedded world: scenes, descriptions and a small trained LLaVA, so that everything runs offline on a real model."""

from __future__ import annotations

from pathlib import Path

from reweigh.world.scenes import SIZE, SPLITS, Scene, scene, scenes

__all__ = ["SIZE", "SPLITS", "Scene", "path", "scene", "scenes"]


def path() -> Path:
    """The folder of the embedded model's checkpoint; load it with ``AutoModelForImageTextToText.from_pretrained``."""
    return Path(__file__).parent / "checkpoint"
