"""A tiny random detector and a matcher, saved with their processors: what HALC asks about a picture."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers as hf

from checkpoints.noise import perturb
from checkpoints.tokens import TOKENS, tokenizer

SIDE = 32
TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


def bert_tokens() -> hf.PreTrainedTokenizerFast:
    """A tokenizer that pads on the right, as positions counted from the left want it."""
    made = tokenizer(
        ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[DEC]", "[ENC]"),
        bos="[CLS]",
        eos="[SEP]",
        pad="[PAD]",
        unk="[UNK]",
    )
    made.padding_side = "right"
    return made


def grounding_dino(folder: Path) -> Path:
    backbone = hf.SwinConfig(
        image_size=SIDE,
        patch_size=2,
        embed_dim=8,
        depths=[1, 1, 1],
        num_heads=[2, 2, 2],
        window_size=2,
        out_features=["stage2", "stage3"],
    )
    config = hf.GroundingDinoConfig(
        backbone_config=backbone,
        text_config={"model_type": "bert", "vocab_size": TOKENS, "max_position_embeddings": 64, **TEXT},
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=8,
        num_feature_levels=2,
        max_text_len=16,
    )
    pictures = hf.GroundingDinoImageProcessorPil(size={"height": SIDE, "width": SIDE})
    return _saved(
        hf.GroundingDinoForObjectDetection, config, hf.GroundingDinoProcessor(pictures, bert_tokens()), folder
    )


def blip(folder: Path, *, captioner: bool = False) -> Path:
    config = hf.BlipConfig(
        text_config={
            **TEXT,
            "vocab_size": TOKENS,
            "max_position_embeddings": 64,
            "encoder_hidden_size": 32,
            "projection_dim": 16,
            "bos_token_id": 4,
            "sep_token_id": 2,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
        vision_config={**TEXT, "image_size": SIDE, "patch_size": 8},
        projection_dim=16,
        image_text_hidden_size=16,
    )
    pictures = hf.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    kind = hf.BlipForConditionalGeneration if captioner else hf.BlipForImageTextRetrieval
    return _saved(kind, config, hf.BlipProcessor(pictures, bert_tokens()), folder)


def _saved(kind, config, processor, folder: Path) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = kind(config)
    perturb(model, seed=1)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
