"""The paper's operating points: layer and beta of each published model.

A model that the paper does not report takes the point of the nearest size of its family, at the same distance from
the last block, as the paper does for its 13B and 32B models.
"""

from __future__ import annotations

from dataclasses import dataclass

from reweigh.families.anatomy import Anatomy
from reweigh.method.edit import check_beta
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import ReferenceTable

BETA = 1.1
"""The paper's most common beta, for families that it does not report."""

TUNED, REUSED = "tuned in the paper", "the paper reuses the 7B beta and distance from the last block"


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """One model of the paper.

    Attributes:
        model: Its name in the paper.
        family: ``model_type`` of its checkpoints in transformers.
        blocks: Number of its decoder blocks, which distinguishes sizes of a family.
        layer: 0-based block to read.
        beta: Maximum penalty.
        source: How the paper chose it.
    """

    model: str
    family: str
    blocks: int
    layer: int
    beta: float
    source: str = TUNED


PUBLISHED = (
    PublishedPoint("LLaVA-1.5-7B", "llava", 32, 29, 1.1),
    PublishedPoint("LLaVA-1.5-13B", "llava", 40, 37, 1.1, REUSED),
    PublishedPoint("LLaVA-NeXT-7B", "llava_next", 32, 30, 1.2),
    PublishedPoint("InstructBLIP-7B", "instructblip", 32, 29, 0.5),
    PublishedPoint("InstructBLIP-13B", "instructblip", 40, 37, 0.5, REUSED),
    PublishedPoint("Qwen2.5-VL-7B", "qwen2_5_vl", 28, 27, 1.1),
    PublishedPoint("Qwen2.5-VL-32B", "qwen2_5_vl", 64, 63, 1.1, REUSED),
    PublishedPoint("InternVL2.5-8B", "internvl", 32, 31, 1.1),
    PublishedPoint("InternVL2.5-26B", "internvl", 48, 45, 1.1),
    PublishedPoint("Gemma-3-12B", "gemma3", 48, 45, 1.0),
    PublishedPoint("Gemma-3-27B", "gemma3", 62, 59, 0.5),
)


def published_point(anatomy: Anatomy) -> OperatingPoint | None:
    """Return the paper's point for a loaded model; ``None`` for a family the paper does not report."""
    return nearest_point(anatomy.family.name, len(anatomy.blocks))


def nearest_point(family: str, blocks: int) -> OperatingPoint | None:
    """Return the paper's point for a family and a number of blocks.

    Examples:
        >>> print(nearest_point("instructblip", 32))
        layer 29, beta 0.5 (published for InstructBLIP-7B)
        >>> nearest_point("llava", 60).layer
        57
    """
    same = [point for point in PUBLISHED if point.family == family]
    if not same:
        return None
    nearest = min(same, key=lambda point: (abs(point.blocks - blocks), point.blocks))
    if nearest.blocks == blocks:
        return OperatingPoint(nearest.layer, nearest.beta, f"published for {nearest.model}")
    layer = blocks - (nearest.blocks - nearest.layer)
    if layer < 0:
        return None
    return OperatingPoint(
        layer, nearest.beta, f"taken from {nearest.model}, at the same distance from the last block"
    )


def point_in_use(family: str, blocks: int, table: ReferenceTable, beta: float | None) -> OperatingPoint:
    """Return layer and beta in use: given, tuned with the table, the paper's, or the paper's most common."""
    layer, published = table.layer, nearest_point(family, blocks)
    if beta is not None:
        return OperatingPoint(layer, check_beta(beta), "beta given")
    if table.point is not None:
        return table.point
    if published is None:
        source = "the paper's most common beta, not chosen for this model; `reweigh tune` chooses one"
        return OperatingPoint(layer, BETA, source)
    elsewhere = "" if published.layer == layer else f"; its layer would be {published.layer}"
    return OperatingPoint(layer, published.beta, published.source + elsewhere)
