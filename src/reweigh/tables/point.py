"""The operating point: the layer and beta to use a model with, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A layer, a beta and their source in words.

    Attributes:
        records: On how many records tuning chose it; 0 for a point that was not tuned.
        pictures: The pictures it was chosen on: a record's id by the hash of its picture.
    """

    layer: int
    beta: float
    source: str
    records: int = 0
    pictures: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __str__(self) -> str:
        return f"layer {self.layer}, beta {self.beta:g} ({self.source})"
