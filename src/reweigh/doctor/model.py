"""Describe a model before it is used, for ``reweigh doctor``, and prove that the lens reads its own output path.

Lens parity: the last block's stream through norm and head must give the model's logits, up to a monotone map
(soft-capping, scale), and every captured stream must be the one transformers reports. It proves the wiring, not the quality
of evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.base import Pass
from reweigh.engines.transformers.manager import image_pass, watching
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.families.weights import input_device
from reweigh.images import read_image
from reweigh.measuring import measure
from reweigh.method.kernels import KERNELS, choose_kernel, unused_numba
from reweigh.method.lens import lens_disagreement
from reweigh.text import Template


@dataclass(frozen=True)
class LensParity:
    """What was found.

    Attributes:
        positions: Visual positions compared.
        max_difference: Largest difference between lens and model logits; above zero for a cap or a scale.
        disagreement: How far the lens misorders the model's best 50 tokens, as a share of the logits' range.
        rank_agreement: Share of the model's best 50 tokens whose rank is the same through the lens.
        between_blocks: Blocks after which the family adds something before the next block (DeepStack).
    """

    positions: int
    max_difference: float
    disagreement: float
    rank_agreement: float
    between_blocks: tuple[int, ...]

    def holds(self, tolerance: float = 1e-4) -> bool:
        """Whether the ranks can be trusted."""
        return self.disagreement <= tolerance


def lens_parity(model: Any, inputs: Mapping[str, Any]) -> LensParity:
    """Compare the lens with the model's own logits at the image's positions, in one forward pass."""
    anatomy = find_anatomy(model)
    passes: list[Pass] = []
    with watching(anatomy, range(len(anatomy.blocks)), passes.append), torch.no_grad():
        output = model(**{**inputs, "use_cache": False, "output_hidden_states": True})
    forward = image_pass(passes)
    rows = [row for row, sequence in enumerate(forward.rows) for _ in sequence.positions]
    columns = [column for sequence in forward.rows for column in sequence.positions]
    last = len(anatomy.blocks) - 1
    with torch.no_grad():
        read = anatomy.lens().read(forward.states[last][rows, columns]).float()
    own = forward.logits[rows, columns].float()
    return LensParity(
        positions=len(columns),
        max_difference=float((read - own).abs().max()),
        disagreement=lens_disagreement(read, own),
        rank_agreement=_rank_agreement(read, own),
        between_blocks=_between(forward.states, _hidden_states(output), last),
    )


def _hidden_states(output: Any) -> tuple[Tensor, ...]:
    found = getattr(output, "hidden_states", None)
    inner = getattr(output, "language_model_outputs", None)
    return tuple(found or getattr(inner, "hidden_states", None) or ())


def _between(states: Mapping[int, Tensor], reported: tuple[Tensor, ...], last: int) -> tuple[int, ...]:
    """List blocks whose stream differs from ``hidden_states[l + 1]`` of transformers; the last one is normed."""
    if len(reported) != last + 2:
        return ()
    return tuple(layer for layer in range(last) if not torch.equal(states[layer], reported[layer + 1]))


def _rank_agreement(read: Tensor, own: Tensor) -> float:
    best = own.topk(min(50, own.shape[-1]), dim=-1).indices
    ranks = [(logits.unsqueeze(1) > logits.gather(1, best).unsqueeze(2)).sum(-1) for logits in (read, own)]
    return float((ranks[0] == ranks[1]).float().mean())


def examine(
    model: Any, processor: Any, image: str | Path | None = None, *, template: Template | None = None
) -> dict[str, Any]:
    """Describe a model before it is used, as plain values."""
    anatomy = find_anatomy(model)
    names = {id(module): name for name, module in model.named_modules()}
    picture = read_image(image) if image is not None else sample_picture()
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
        "rows_ranked": anatomy.rows,
        "image_tokens": list(anatomy.image_tokens),
        "dtype": str(model.dtype).removeprefix("torch."),
        "lens_dtype": anatomy.lens().dtype,
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
            "known": list(KERNELS),
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


def sample_picture() -> Any:
    """Return a synthetic picture with some structure; what it shows does not matter for the wiring."""
    from PIL import Image

    return Image.radial_gradient("L").resize((224, 224)).convert("RGB")
