"""What was found inside a model, and whether the lens can be trusted on it: the facts behind ``reweigh doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reweigh.engines.transformers.measure import measure
from reweigh.engines.transformers.parity import lens_parity
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.families.weights import input_device
from reweigh.images import read_image
from reweigh.method.kernels import choose_kernel, kernel_names, unused_numba
from reweigh.method.lens import Lens


def examine(
    model: Any, processor: Any, image: str | Path | None = None, *, template: str | None = None
) -> dict[str, Any]:
    """Everything that can be said of a model before it is used, as plain values."""
    anatomy = find_anatomy(model)
    names = {id(module): name for name, module in model.named_modules()}
    picture = read_image(image) if image is not None else _sample()
    inputs = build_inputs(model, processor, [picture], [DESCRIBE], template=template)
    evidence = measure(model, inputs)[0]
    parity = lens_parity(model, inputs)
    tolerance = 1e-4 if str(model.dtype) == "torch.float32" else 0.05
    device = input_device(model)
    kernel = choose_kernel("auto", device, model.dtype)
    columns = evidence.positions if evidence is not None else ()
    patches = [patch for patch in (evidence.patches if evidence is not None else ()) if patch is not None]
    return {
        "class": type(model).__name__,
        "family": anatomy.family.name,
        "blocks": {"path": names.get(id(anatomy.blocks), "?"), "count": len(anatomy.blocks)},
        "norm": names.get(id(anatomy.norm), "?"),
        "head": names.get(id(anatomy.head), "?"),
        "vocabulary": anatomy.vocab_size,
        "image_tokens": list(anatomy.image_tokens),
        "dtype": str(model.dtype).removeprefix("torch."),
        "lens_dtype": Lens(anatomy.norm, anatomy.head).dtype,
        "device": str(device),
        "visual_positions": {
            "prompt_length": int(inputs["input_ids"].shape[1]),
            "count": len(columns),
            "first": columns[0] if columns else None,
            "last": columns[-1] if columns else None,
            "tiles": sorted({(patch.tile, patch.rows, patch.cols) for patch in patches}),
        },
        "kernel": {
            "chosen": kernel.name,
            "known": list(kernel_names()),
            "faster": None
            if device.type != "cpu" or (why := unused_numba()) is None
            else f"{why.message}; {why.hint}",
        },
        "parity": {
            "holds": parity.holds(tolerance),
            "positions": parity.positions,
            "max_difference": parity.max_difference,
            "disagreement": parity.disagreement,
            "rank_agreement": parity.rank_agreement,
            "between_blocks": list(parity.between_blocks),
        },
    }


def _sample() -> Any:
    """A made picture with some structure; what it shows does not matter for the wiring."""
    from PIL import Image

    return Image.radial_gradient("L").resize((224, 224)).convert("RGB")
