"""LLaVA-1.5 and its kin: one view of each image, on the grid of the vision tower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reweigh.families.tower import seen_patches
from reweigh.method.grids import Picture, Run, View


def pictures(config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]) -> Iterable[tuple[int, Picture]]:
    """One view for each image, all of one size; with a Pixtral tower, one view of the image's own shape."""
    vision, token = config.vision_config, config.image_token_id
    if vision.model_type == "pixtral":
        # the row breaks of Pixtral prompts are tokens of their own, so the grid has no control features
        side = vision.patch_size * getattr(config, "spatial_merge_size", 1)
        sizes = inputs.get("image_sizes")
        return [(token, (View(int(h) // side, int(w) // side),)) for h, w in ([] if sizes is None else sizes)]
    rows, cols = seen_patches(vision, inputs)
    # a CLIP tower puts a class token first; every strategy but "default" keeps it
    strategy = getattr(config, "vision_feature_select_strategy", "default")
    kept = vision.model_type == "clip_vision_model" and strategy != "default"
    view = View(rows, cols, lead=int(kept))
    total = sum(run.length for row in runs for run in row)
    return [(token, (view,))] * (total // view.length)
