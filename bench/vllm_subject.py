"""The checkpoint that is timed inside vLLM: a LLaVA of random weights that vLLM loads, with a processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bench.random_llava import VOCAB

PROMPT = "<image> word"


def save_llava(folder: Path, *, width: int, blocks: int, side: int) -> None:
    """A LLaVA of random weights with a processor, as a checkpoint that vLLM loads."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    from training.checkpoint import save_checkpoint

    torch.manual_seed(0)
    pixels = 14 * side
    processor = _processor(pixels)
    processor.save_pretrained(folder / "processor")
    vision = CLIPVisionConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=pixels,
        patch_size=14,
    )
    text = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=width,
        num_hidden_layers=blocks,
        num_attention_heads=width // 128,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=VOCAB - 1,
        image_seq_length=side * side,
        vision_feature_layer=-1,
    )
    save_checkpoint(LlavaForConditionalGeneration(config), folder / "processor", folder, {})


def _processor(pixels: int) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{number}": number for number in range(3, VOCAB - 1)}}
    core = Tokenizer(WordLevel({**words, "<image>": VOCAB - 1}, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<unk>",
        extra_special_tokens={"image_token": "<image>"},
    )
    square = {"height": pixels, "width": pixels}
    images = CLIPImageProcessor(size={"shortest_edge": pixels}, crop_size=square)
    return LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
