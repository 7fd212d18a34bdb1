"""Parts of a processor that several packages need; a text-only model's processor is its tokenizer."""

from __future__ import annotations

from typing import Any

from reweigh.files.artifacts import sha256_json


def tokenizer_of(processor: Any) -> Any:
    """The tokenizer of a processor; a bare tokenizer is its own."""
    return getattr(processor, "tokenizer", processor)


def chat_template_of(processor: Any) -> Any:
    """The processor's chat template, or ``None``."""
    return getattr(processor, "chat_template", None)


def prompt_hash(processor: Any, prompt: str, template: str | None) -> str:
    """Hash of a prompt and its template: the given one, or the processor's."""
    return sha256_json([template or chat_template_of(processor), prompt])


def crops_centre(processor: Any) -> bool:
    """Whether the image processor keeps only the centre square of a picture."""
    return bool(getattr(getattr(processor, "image_processor", None), "do_center_crop", False))
