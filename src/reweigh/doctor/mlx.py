"""Compare how mlx-vlm and transformers compute one model, for ``reweigh doctor --engine mlx``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import torch
from torch import Tensor

from reweigh.doctor.model import sample_picture
from reweigh.engines.base import Pass, Watcher
from reweigh.engines.mlx.hooks import MlxHooks
from reweigh.engines.mlx.model import MlxAnatomy, to_torch
from reweigh.engines.mlx.model import find_anatomy as find_mlx
from reweigh.engines.opening import engine_of
from reweigh.engines.reader import Reader
from reweigh.engines.transformers.manager import image_pass, watching
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.points import published_point
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.images import read_image
from reweigh.method.lens import lens_disagreement
from reweigh.tables.key import differences
from reweigh.text import Template


def examine(
    loaded: tuple[Any, Any],
    mlx: tuple[Any, Any],
    image: str | Path | None = None,
    *,
    template: Template | None = None,
) -> dict[str, Any]:
    """Compare model and processor of transformers with those of mlx-vlm on the same inputs; returns plain values."""
    (model, processor), own = loaded, find_mlx(*mlx)
    lens = own.lens()
    theirs = find_anatomy(model.to(getattr(torch, lens.dtype)))
    picture = read_image(image) if image is not None else sample_picture()
    inputs = build_inputs(model, processor, [picture], [DESCRIBE], template=template)
    passes = _in_transformers(theirs, inputs), _in_mlx(own, inputs)
    logits = [one.logits.float() for one in passes]
    point = published_point(theirs)
    layer = len(theirs.blocks) - 1 if point is None else point.layer
    readers = [Reader(one, [layer]) for one in (theirs.lens(), lens)]
    for reader, one in zip(readers, passes, strict=True):
        reader.gather(one)
    found = [reader.mean(one.rows[0], layer) for reader, one in zip(readers, passes, strict=True)]
    gap, span = float((logits[0] - logits[1]).abs().max()), float(logits[0].max() - logits[0].min())
    lens_gap = lens_disagreement(
        lens.read(passes[1].states[len(own.blocks) - 1][0]).float(), passes[1].logits[0].float()
    )
    tolerance = 1e-4 if lens.dtype == "float32" else 0.05
    identities = theirs.identify(processor).to_json(), own.identify(mlx[1]).to_json()
    found_apart = differences(*identities, sides=("transformers", "mlx-vlm"))
    return {
        "class": type(model).__name__,
        "family": own.family.name,
        "dtype": lens.dtype,
        "pixels": _pixel_gap(engine_of(own, mlx[1]).inputs([picture], [DESCRIBE], template=template), inputs),
        "logits": {
            "positions": logits[0].shape[1],
            "max_difference": gap,
            "range": span,
            "same_winner": float((logits[0].argmax(-1) == logits[1].argmax(-1)).float().mean()),
        },
        "evidence": {
            "layer": layer,
            "positions": len(passes[1].rows[0].positions),
            "max_difference": float((found[0] - found[1]).abs().max()),
            "largest": float(found[0].max()),
        },
        "lens": {"disagreement": lens_gap, "holds": lens_gap <= tolerance},
        "differences": found_apart,
        "agrees": gap <= tolerance * span,
        "shares_tables": gap <= tolerance * span and not found_apart,
    }


def _in_transformers(anatomy: Anatomy, inputs: Mapping[str, Any]) -> Pass:
    passes: list[Pass] = []
    with watching(anatomy, range(len(anatomy.blocks)), passes.append), torch.no_grad():
        anatomy.model(**{**inputs, "use_cache": False})
    return image_pass(passes)


def _in_mlx(anatomy: MlxAnatomy, inputs: Mapping[str, Tensor]) -> Pass:
    model, passes = anatomy.model, list[Pass]()
    watcher = Watcher(anatomy, range(len(anatomy.blocks)), passes.append)
    arrays = {
        name: mx.array(value.float().numpy() if value.is_floating_point() else value.numpy())
        for name, value in inputs.items()
    }
    ids, pixels, mask = (arrays.pop(name, None) for name in ("input_ids", "pixel_values", "attention_mask"))
    with MlxHooks.of(anatomy).passes(watcher.run()):
        embedded = model.get_input_embeddings(ids, pixels, mask=mask, **arrays).to_dict()
        given = {name: value for name, value in embedded.items() if value is not None}
        model.language_model(ids, **{**arrays, **given})
    return image_pass(passes)


def _pixel_gap(row: Mapping[str, Any], inputs: Mapping[str, Tensor]) -> float | None:
    """Return the largest difference between both processors' pixels, or ``None`` if they cut different tiles."""
    theirs = inputs["pixel_values"].flatten()
    ours = to_torch(row["pixel_values"]).flatten().to(theirs.dtype)
    return float((ours - theirs).abs().max()) if ours.numel() == theirs.numel() else None
