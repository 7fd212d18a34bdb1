"""What the record of a run keeps of a loaded model."""

from __future__ import annotations

from typing import Any


def describe_model(model: Any, processor: Any) -> dict[str, Any]:
    """Return what the record keeps of a loaded model: its identity by content, device, types and attention."""
    from reweigh.families.anatomy import find_anatomy
    from reweigh.families.identity import identify
    from reweigh.families.weights import input_device

    weight = next(model.parameters())
    return {
        "identity": identify(find_anatomy(model), processor).summary(),
        "device": input_device(model).type,
        "weights_dtype": str(weight.dtype).removeprefix("torch."),
        "attention": getattr(model.config, "_attn_implementation", None),
    }
