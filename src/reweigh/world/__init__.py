"""The embedded world: scenes, descriptions and a small trained LLaVA, so that everything runs offline on a real model."""

from __future__ import annotations

from reweigh.world.shipped import operating_point, path, table_path

__all__ = ["operating_point", "path", "table_path"]
