"""The parts of a processor that several packages need; where a model has no images, it is the tokenizer itself."""

from __future__ import annotations

from typing import Any

from reweigh.files.artifacts import sha256_json


def tokenizer_of(processor: Any) -> Any:
    """The tokenizer of a processor; a bare tokenizer is its own."""
    return getattr(processor, "tokenizer", processor)


def chat_template_of(processor: Any) -> Any:
    """The processor's chat template, ``None`` where it has none."""
    return getattr(processor, "chat_template", None)


def prompt_hash(processor: Any, prompt: str, template: str | None) -> str:
    """Hash of a prompt and of the template around it: the one given, else the processor's."""
    return sha256_json([template or chat_template_of(processor), prompt])


def crops_centre(processor: Any) -> bool:
    """Whether the image processor keeps the square in the centre of a picture only."""
    return bool(getattr(getattr(processor, "image_processor", None), "do_center_crop", False))
