"""The embedded world: scenes with known content, and a small trained LLaVA that describes them and hallucinates."""

from reweigh.world.shipped import operating_point, path, table_path

__all__ = ["operating_point", "path", "table_path"]
