"""Small checkpoints in the form of released ones, which mlx-vlm reads; transformers reads both forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers as hf
from safetensors.torch import load_file, save_file

from checkpoints import families
from checkpoints.families import BUILDERS, PATCH, SIDE, Made, ids, text
from checkpoints.more import VISION
from checkpoints.tokens import TOKENS, tokenizer

CHAT = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}{% if part.type == 'image' %}<image>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)


def internvl() -> Made:
    """With the decoder of InternVL 3.5: mlx-vlm knows no other."""
    model, processor = families.internvl()
    config = model.config.to_dict()
    config["text_config"] = text("qwen3", head_dim=12, **ids(processor.tokenizer))
    return hf.InternVLForConditionalGeneration(hf.InternVLConfig(**config)), processor


def idefics3() -> Made:
    roles = {
        "image_token": "<image>",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
        "end_of_utterance_token": "<end_of_utterance>",
    }
    tok = tokenizer(
        ("<|im_start|>", "<pad>", *roles.values()),
        bos="<|im_start|>", eos="<end_of_utterance>", pad="<pad>", roles=roles,
    )  # fmt: skip
    config = hf.Idefics3Config(
        vision_config={**VISION, "image_size": SIDE, "patch_size": PATCH},
        text_config=text("llama", **ids(tok)),
        image_token_id=tok.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        tie_word_embeddings=False,
        pad_token_id=tok.pad_token_id,
    )
    pictures = hf.Idefics3ImageProcessorPil(
        size={"longest_edge": 2 * SIDE}, max_image_size={"longest_edge": SIDE}, do_image_splitting=False
    )
    return hf.Idefics3ForConditionalGeneration(config), hf.Idefics3Processor(
        pictures, tok, image_seq_len=4, chat_template=CHAT
    )


FAMILIES = ("llava", "qwen2_5_vl", "idefics3", "gemma3", "internvl", "llava_next")


def build(family: str, folder: Path) -> Path:
    """Save a checkpoint of a family under the names and settings of released ones."""
    own = {"internvl": internvl, "idefics3": idefics3}
    known, kinds = dict(BUILDERS), families.FAMILIES
    try:
        BUILDERS.update(own)
        families.FAMILIES = tuple(BUILDERS)
        families.build(family, folder)
    finally:
        BUILDERS.clear()
        BUILDERS.update(known)
        families.FAMILIES = kinds
    _rewrite(folder / "model.safetensors", family)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(_released(config, family)))
    return folder


def _rewrite(file: Path, family: str) -> None:
    tensors = load_file(file)
    towers = family in ("llava", "llava_next", "gemma3")
    renamed = {
        name.replace("vision_tower.", "vision_tower.vision_model.", 1) if towers else name: tensor
        for name, tensor in tensors.items()
    }
    for name, tensor in renamed.items():
        if name.endswith(("lm_head.weight", "embed_tokens.weight")):
            tensor[TOKENS:] = 0.0  # never chosen: mlx-vlm cannot write a token that the tokenizer lacks
    save_file(renamed, file, metadata={"format": "pt"})


def _released(config: dict[str, Any], family: str) -> dict[str, Any]:
    decoder = config["text_config"]
    rotary = decoder.get("rope_parameters", {})
    if family == "gemma3":
        decoder |= {"sliding_window_pattern": 4, "mm_tokens_per_image": config["mm_tokens_per_image"]}
        return config | {"hidden_size": decoder["hidden_size"]}
    decoder["rope_theta"] = rotary["rope_theta"]
    if family == "qwen2_5_vl":  # one flat configuration
        config["vision_config"]["model_type"] = "qwen2_5_vl"
        sections = {"type": "mrope", "mrope_section": rotary["mrope_section"]}
        left = ("rope_parameters", "model_type", "layer_types")
        flat = {name: value for name, value in decoder.items() if name not in left}
        rest = {name: value for name, value in config.items() if name != "text_config"}
        return {**flat, **rest, "rope_scaling": sections}
    return config
