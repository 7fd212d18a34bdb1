"""The embedded model as a subject of benchmarks."""

from __future__ import annotations

from typing import Any

from reweigh.attached import attach
from reweigh.families.load import load
from reweigh.world import path, table_path
from reweigh.world.scenes import scene, scenes
from tools.bench.generation import Subject, describing


def embedded_model() -> tuple[Any, Any]:
    """The shipped model and its processor, on the CPU."""
    return load(path(), device="cpu")


def embedded(new_tokens: int = 60) -> Subject:
    """The shipped model at its operating point, describing one of its scenes."""
    session = attach(*embedded_model(), table=table_path())
    return describing("embedded", session, scene("evaluation", index=0).image(), new_tokens)


def scene_pictures(count: int) -> list[Any]:
    """Named calibration scenes of the embedded world."""
    return [(scene.id, scene.image()) for scene in scenes("calibration", count)]
