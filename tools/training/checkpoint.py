"""From trained parameters to a checkpoint folder under the released weight names, in half precision.

transformers and serving engines load the same folder: names are those of the published LLaVA-1.5 checkpoints.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reweigh.files.artifacts import write_bytes, write_json

_RELEASED = (
    (r"^model\.language_model\.", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
    (r"^model\.vision_tower\.", "vision_tower.vision_model."),
    (r"^model\.multi_modal_projector\.", "multi_modal_projector."),
)


def released_name(name: str) -> str:
    """A parameter's name in the published checkpoints of this family."""
    for pattern, replacement in _RELEASED:
        name = re.sub(pattern, replacement, name)
    return name


def save_checkpoint(model: Any, processor: Path, folder: Path, record: Any) -> None:
    """Write configuration, processor, weights (stored in float16, computed in float32) and how they were made."""
    import torch
    from safetensors.torch import save
    from transformers import AutoProcessor, GenerationConfig

    folder.mkdir(parents=True, exist_ok=True)
    named = dict(model.named_parameters())  # tied weights appear once
    tensors = {released_name(n): p.detach().to(torch.float16).contiguous() for n, p in sorted(named.items())}
    write_bytes(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    config = model.config.to_dict() | {"architectures": ["LlavaForConditionalGeneration"], "dtype": "float32"}
    config.pop("_name_or_path", None)
    write_json(folder / "config.json", config)
    GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0).save_pretrained(folder)
    AutoProcessor.from_pretrained(processor).save_pretrained(folder)
    write_json(folder / "training.json", record)


def build(shape: Any, processor: Path, tensors: dict[str, Any]) -> Any:
    """The model with the parameters of a stage."""
    from transformers import AutoTokenizer, LlavaForConditionalGeneration

    from tools.training.model import llava_config

    tokenizer = AutoTokenizer.from_pretrained(processor)
    image = tokenizer.convert_tokens_to_ids("<image>")
    model = LlavaForConditionalGeneration(llava_config(shape, len(tokenizer), image))
    model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    return model.eval()
