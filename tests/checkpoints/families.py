"""The six families of the paper as small random checkpoints on disk, each with its real processor.

Four decoder blocks, hidden size 48, a head a little wider than the tokenizer (as released checkpoints have),
images of 28 to 56 pixels. One function per family returns the model and the processor; `build` saves both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf

from checkpoints.noise import perturb
from checkpoints.tokens import TOKENS, tokenizer
from reweigh.families.processor import without_video

BLOCKS = 4
WIDTH = 48
VOCABULARY = TOKENS + 16
SIDE = 28  # pixels of one CLIP-like view
PATCH = 7

Made = tuple[hf.PreTrainedModel, hf.ProcessorMixin]

USER_ASSISTANT = (
    "{% for m in messages %}{% if m.role == 'user' %}USER: {% else %}ASSISTANT: {% endif %}"
    "{% for part in m.content %}{% if part.type == 'image' %}<image>\n{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}"
    "{% if m.role == 'user' %} {% else %}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
INST = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {% endif %}"
    "{% for part in m.content %}{% if part.type == 'image' %}<image>\n{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}"
    "{% if m.role == 'user' %} [/INST]{% else %}</s>{% endif %}{% endfor %}"
)
TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for part in m.content %}{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA_TURNS = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>"
    "{% if m.role == 'assistant' %}model{% else %}{{ m.role }}{% endif %}{{ '\n' }}"
    "{% for part in m.content %}{% if part.type == 'image' %}<start_of_image>{% else %}{{ part.text }}"
    "{% endif %}"
    "{% endfor %}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def clip_vision() -> dict[str, Any]:
    """A CLIP tower of 4 x 4 patches and a class token."""
    return {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": SIDE,
        "patch_size": PATCH,
        "projection_dim": 32,
    }


def text(model_type: str, heads: int = 4, kv_heads: int = 2, **more: Any) -> dict[str, Any]:
    """A decoder of the shape that all six share."""
    return {
        "model_type": model_type,
        "hidden_size": WIDTH,
        "intermediate_size": 96,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        **more,
    }


def ids(tok: hf.PreTrainedTokenizerFast) -> dict[str, int | None]:
    """The ids that text configs carry."""
    return {
        "bos_token_id": tok.bos_token_id,
        "eos_token_id": tok.eos_token_id,
        "pad_token_id": tok.pad_token_id,
    }


def llama_tokens(extra: tuple[str, ...] = ("<image>",)) -> hf.PreTrainedTokenizerFast:
    return tokenizer(
        ("<unk>", "<s>", "</s>", "<pad>", *extra), bos="<s>", eos="</s>", pad="<pad>", unk="<unk>",
        roles={"image_token": "<image>"} if "<image>" in extra else None,
    )  # fmt: skip


def llava() -> Made:
    tok = llama_tokens()
    config = hf.LlavaConfig(
        vision_config=clip_vision(),
        text_config=text("llama", kv_heads=4, **ids(tok)),
        image_token_index=tok.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        image_seq_length=(SIDE // PATCH) ** 2,
    )
    square = {"height": SIDE, "width": SIDE}
    processor = hf.LlavaProcessor(
        image_processor=hf.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=square),
        tokenizer=tok,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=USER_ASSISTANT,
    )
    return hf.LlavaForConditionalGeneration(config), processor


def llava_next() -> Made:
    tok = llama_tokens()
    pinpoints = [[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE], [3 * SIDE, SIDE], [SIDE, 3 * SIDE]]
    config = hf.LlavaNextConfig(
        vision_config=clip_vision(),
        text_config=text("mistral", sliding_window=None, **ids(tok)),
        image_token_index=tok.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=pinpoints,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        image_seq_length=(SIDE // PATCH) ** 2,
    )
    processor = hf.LlavaNextProcessor(
        image_processor=hf.LlavaNextImageProcessorPil(
            size={"shortest_edge": SIDE},
            crop_size={"height": SIDE, "width": SIDE},
            image_grid_pinpoints=pinpoints,
        ),
        tokenizer=tok,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=INST,
    )
    return hf.LlavaNextForConditionalGeneration(config), processor


def instructblip() -> Made:
    tok = llama_tokens(extra=())
    questions = tokenizer(("[PAD]", "[CLS]", "[SEP]", "[DEC]"), bos="[DEC]", eos="[SEP]", pad="[PAD]")
    processor = hf.InstructBlipProcessor(
        image_processor=hf.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE}),
        tokenizer=tok,  # the processor adds <image> at the end of its vocabulary
        qformer_tokenizer=questions,
        num_query_tokens=8,
    )
    config = hf.InstructBlipConfig(
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": SIDE,
            "patch_size": PATCH,
        },
        qformer_config={
            "vocab_size": TOKENS,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "encoder_hidden_size": 32,
            "max_position_embeddings": 512,
        },
        text_config=text("llama", kv_heads=4, **ids(tok)),
        num_query_tokens=8,
        image_token_index=tok.convert_tokens_to_ids("<image>"),
    )
    return hf.InstructBlipForConditionalGeneration(config), processor


def qwen2_5_vl() -> Made:
    marks = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tok = tokenizer(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *marks), eos="<|im_end|>", pad="<|endoftext|>"
    )
    start, end, image, video = tok.convert_tokens_to_ids(marks)
    config = hf.Qwen2_5_VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": WIDTH,
            "patch_size": PATCH,
            "spatial_patch_size": PATCH,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 4 * PATCH,  # two merged patches a side: windows must be put back in order
            "fullatt_block_indexes": [1],
        },
        text_config=text(
            "qwen2_5_vl_text",
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]},
            **ids(tok),
        ),
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        **ids(tok),
    )
    pictures = hf.Qwen2VLImageProcessorPil(
        patch_size=PATCH, merge_size=2, size={"shortest_edge": 14 * 14, "longest_edge": 84 * 84}
    )
    template = TURNS.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    processor = without_video(hf.Qwen2_5_VLProcessor)(pictures, tok, chat_template=template)
    return hf.Qwen2_5_VLForConditionalGeneration(config), processor


def internvl() -> Made:
    roles = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tok = tokenizer(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *roles.values()),
        eos="<|im_end|>", pad="<|endoftext|>", roles=roles,
    )  # fmt: skip
    side = 2 * SIDE
    config = hf.InternVLConfig(
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": [side, side],
            "patch_size": [PATCH, PATCH],
        },
        text_config=text("qwen2", **ids(tok)),
        image_token_id=tok.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=16,
        downsample_ratio=0.5,
        tie_word_embeddings=False,
    )
    pictures = hf.GotOcr2ImageProcessorPil(
        size={"height": side, "width": side}, crop_to_patches=True, min_patches=1, max_patches=6
    )
    template = TURNS.replace("IMAGE", "<IMG_CONTEXT>\n")
    stills = without_video(hf.InternVLProcessor)
    processor = stills(pictures, tok, chat_template=template, image_seq_length=16)
    return hf.InternVLForConditionalGeneration(config), processor


def gemma3() -> Made:
    roles = {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    }
    tok = tokenizer(
        ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", *roles.values()),
        bos="<bos>", eos="<eos>", pad="<pad>", unk="<unk>", roles=roles,
    )  # fmt: skip
    side = 2 * SIDE
    boi, eoi, image = tok.convert_tokens_to_ids(list(roles.values()))
    config = hf.Gemma3Config(
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": side,
            "patch_size": PATCH,
            "vision_use_head": False,
        },
        text_config=text(
            "gemma3_text",
            head_dim=12,
            query_pre_attn_scalar=12,
            sliding_window=32,
            layer_types=["sliding_attention"] * (BLOCKS - 1) + ["full_attention"],
            **ids(tok),
        ),
        mm_tokens_per_image=16,
        boi_token_index=boi,
        eoi_token_index=eoi,
        image_token_index=image,
        eos_token_id=tok.eos_token_id,
    )
    processor = hf.Gemma3Processor(
        image_processor=hf.Gemma3ImageProcessorPil(size={"height": side, "width": side}),
        tokenizer=tok,
        image_seq_length=16,
        chat_template=GEMMA_TURNS,
    )
    return hf.Gemma3ForConditionalGeneration(config), processor


# Released checkpoints of these families declare a video processor, which only torchvision can build.
VIDEO_PARTS = {
    "qwen2_5_vl": {
        "video_processor_type": "Qwen2VLVideoProcessor",
        "patch_size": PATCH,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": 14 * 14, "longest_edge": 84 * 84},
    },
    "internvl": {
        "video_processor_type": "InternVLVideoProcessor",
        "size": {"height": 2 * SIDE, "width": 2 * SIDE},
    },
}
BUILDERS: dict[str, Callable[[], Made]] = {
    "llava": llava,
    "llava_next": llava_next,
    "instructblip": instructblip,
    "qwen2_5_vl": qwen2_5_vl,
    "internvl": internvl,
    "gemma3": gemma3,
}
FAMILIES = tuple(BUILDERS)


@torch.no_grad()
def turn_signs(norm: torch.nn.Module) -> None:
    """Negate every second channel of a Gemma norm, whose gain is 1 + weight.

    A random model with a tied head otherwise only repeats the token it has just read.
    """
    norm.weight[::2] = -2.0 - norm.weight[::2]


def build(family: str, folder: Path, *, bare: bool = False) -> Path:
    """Save a checkpoint of ``family`` in ``folder``; ``bare`` leaves the chat template out."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, processor = BUILDERS[family]()
    perturb(model, seed=FAMILIES.index(family))
    if family == "gemma3":
        turn_signs(model.model.language_model.norm)
    model.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    model.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    if bare:
        processor.chat_template = None
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    if family in VIDEO_PARTS:
        file = folder / "processor_config.json"
        declared = json.loads(file.read_text())
        file.write_text(json.dumps({**declared, "video_processor": VIDEO_PARTS[family]}, indent=2))
    return folder
