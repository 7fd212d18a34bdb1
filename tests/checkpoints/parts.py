"""What the bare random models of ``more`` and ``newest`` share: made-up inputs and pieces of configurations."""

from __future__ import annotations

from typing import Any

import torch

from checkpoints.families import PATCH

IMAGE, VIDEO, START, END = 5, 6, 7, 8
FIRST_WORD = 20
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}

Made = tuple[Any, dict[str, torch.Tensor]]


def sequence(features: int, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    """A row of words with ``features`` image placeholders among them."""
    words = torch.arange(FIRST_WORD, FIRST_WORD + 9).tolist()
    row = [*words[:3], START, *[IMAGE] * features, END, *words[3:]]
    ids = torch.tensor([row])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **more}


def pixels(*shape: int) -> torch.Tensor:
    """Random pixel values of the given shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def mrope(**more: Any) -> dict[str, Any]:
    """Rotary parameters of three axes for heads of 12 channels."""
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2], **more}


def flat_patches(features: int) -> dict[str, torch.Tensor]:
    """Inputs of the Qwen-VL kin: a 4 x 6 grid of patches, merged two by two."""
    inputs = sequence(features)
    marks = (inputs["input_ids"] == IMAGE).int()
    grid = torch.tensor([[1, 4, 6]])
    return {
        **inputs,
        "mm_token_type_ids": marks,
        "pixel_values": pixels(24, 6 * PATCH**2),
        "image_grid_thw": grid,
    }


MARKS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}
