"""Build mlx-vlm's inputs from a picture and a question, and an answer from what it generates."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from reweigh.engines.answer import Answer, decode
from reweigh.engines.mlx.model import MlxAnatomy, to_torch
from reweigh.errors import InputError
from reweigh.families.processor import chat_template_of, tokenizer_of
from reweigh.families.prompts import check_prompt, render
from reweigh.text import Template


def build_row(
    anatomy: MlxAnatomy, processor: Any, picture: Any, prompt: str, *, template: Template | None = None
) -> dict[str, Any]:
    """Return the arguments of mlx-vlm's ``generate`` for a prompt with one picture or none."""
    shown = SimpleNamespace(config=anatomy.config)
    check_prompt(shown, processor, prompt)
    voice = processor if chat_template_of(processor) else tokenizer_of(processor)
    text = render(shown, voice, prompt, picture is not None, template)
    nested = anatomy.family.nested_images
    images = {} if picture is None else {"images": [[picture]] if nested else [picture]}
    made = dict(processor(text=[text], **images))
    if picture is not None and set(anatomy.image_tokens).isdisjoint(
        to_torch(mx.array(made["input_ids"])).flatten().tolist()
    ):
        raise InputError(f"the prompt has no place for the image: {text!r} has no image placeholder")
    arrays = {name: value if isinstance(value, mx.array) else mx.array(value) for name, value in made.items()}
    mx.eval(arrays)  # evaluate now: another thread, with another stream, may use them
    return {"mask": arrays.pop("attention_mask", None), **arrays}


def answer_of(
    model: Any, processor: Any, inputs: Mapping[str, Any], *, seed: int | None = None, **options: Any
) -> Answer:
    """Answer one row; the options are those of transformers' ``generate``."""
    from mlx_vlm import generate

    if "max_new_tokens" in options:
        options["max_tokens"] = options.pop("max_new_tokens")
    if not options.pop("do_sample", False):
        options["temperature"] = 0.0
    if seed is not None:
        mx.random.seed(seed)
    made = generate(model, processor, "", **inputs, **options)
    tokens = tuple(made.token_ids or ())
    text = decode(tokenizer_of(processor), tokens)
    return Answer(text.strip(), tokens, made.prompt_tokens)
