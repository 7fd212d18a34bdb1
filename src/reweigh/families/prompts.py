"""From an image and a question to the model's inputs: chat template, placeholders, left padding."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch

from reweigh.errors import InputError
from reweigh.families.catalogue import family_of
from reweigh.families.positions import placeholder_ids
from reweigh.families.processor import chat_template_of, tokenizer_of
from reweigh.families.weights import input_device
from reweigh.text import DESCRIBE, Template

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["DESCRIBE", "Template", "build_inputs", "encode", "render", "render_chat"]


def build_inputs(
    model: Any,
    processor: Any,
    images: Sequence[Image | None],
    prompts: Sequence[str],
    *,
    template: Template | None = None,
) -> dict[str, Any]:
    """Turn one picture (or none) and one prompt per row into left-padded model inputs on the model's device.

    Args:
        template: A text with ``{prompt}`` and the family's image placeholder, used instead of the chat template, or
            arguments for the chat template, e.g. ``{"enable_thinking": False}``.
    """
    if len(images) != len(prompts) or not prompts:
        raise InputError(
            f"{len(images)} images and {len(prompts)} prompts were given; each row needs one of each"
        )
    for text in prompts:
        check_prompt(model, processor, text)
    texts = [
        render(model, processor, text, image is not None, template)
        for image, text in zip(images, prompts, strict=True)
    ]
    return encode(model, processor, texts, [[] if image is None else [image] for image in images])


def encode(
    model: Any, processor: Any, texts: Sequence[str], images: Sequence[Sequence[Image]]
) -> dict[str, Any]:
    """Turn rendered texts and the pictures of each into left-padded model inputs on the model's device."""
    arguments: dict[str, Any] = {
        "text": list(texts),
        "return_tensors": "pt",
        "padding": True,
        "padding_side": "left",
    }
    if any(images):
        nested = family_of(model.config).nested_images  # an empty list for rows without pictures
        shown = [list(row) for row in images]
        arguments["images"] = shown if nested else [picture for row in shown for picture in row]
    try:
        batch = processor(**arguments)
    except ValueError as error:  # some processors count the placeholders themselves
        marks = _picture_marks(model, processor)
        for text, pictures in zip(texts, images, strict=True):
            if pictures and not any(mark in text for mark in marks):
                raise _no_place(processor, text) from error
        raise
    _check_placeholders(model, processor, images, batch["input_ids"], texts)
    inputs = dict(batch.to(input_device(model)))
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            inputs[name] = value.to(model.dtype)
    return inputs


def render(model: Any, processor: Any, prompt: str, has_image: bool, template: Template | None) -> str:
    """Render the text of one row, placeholders included."""
    if isinstance(template, str):
        if "{prompt}" not in template:
            raise InputError(f"the template {template!r} has no {{prompt}}")
        return template.replace("{prompt}", prompt)
    if template or chat_template_of(processor):
        content: list[dict[str, str]] = [{"type": "image"}] if has_image else []
        content.append({"type": "text", "text": prompt})
        messages = [{"role": "user", "content": content}]
        return render_chat(processor, messages, template)
    if family_of(model.config).bare_prompt:
        return prompt
    raise InputError(
        f"the processor of {type(model).__name__} has no chat template, so the prompt cannot be built",
        hint='pass template="USER: <image>\\n{prompt} ASSISTANT:" in the form the model was trained with',
    )


def render_chat(
    processor: Any, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any] | None = None
) -> str:
    """Render a conversation by the chat template; contents are lists of image and text parts.

    Args:
        arguments: Variables of the chat template, e.g. ``{"enable_thinking": False}``; a name that it does not read is
            refused, because it would change nothing.
    """
    given = dict(arguments or {})
    if given:
        _check_arguments(processor, given)
    return str(
        processor.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False, **given)
    )


OWN_ARGUMENTS = (
    "messages",
    "tools",
    "documents",
    "tokenize",
    "add_generation_prompt",
    "continue_final_message",
)
"""What a chat template reads, but callers of ours do not set."""


def _check_arguments(processor: Any, given: Mapping[str, Any]) -> None:
    found = chat_template_of(processor) or ""
    text = " ".join(found.values()) if isinstance(found, Mapping) else found
    ours = {*OWN_ARGUMENTS, *signature(processor.apply_chat_template).parameters}
    for name in given:
        if name in ours:
            raise InputError(f"the chat template's argument {name!r} cannot be set: it is part of the prompt")
        if not re.search(rf"\b{re.escape(name)}\b", text):
            raise InputError(
                f"the chat template of {type(processor).__name__} does not read {name!r}"
                if text
                else f"{type(processor).__name__} has no chat template that could read {name!r}",
                hint="check the spelling; `processor.chat_template` shows what it reads",
            )


def check_prompt(model: Any, processor: Any, prompt: str) -> None:
    """Refuse a prompt that no tokenizer can read, or that contains the model's image placeholder."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the prompt {prompt!r:.200} is not valid Unicode ({error.reason})") from error
    for mark in _picture_marks(model, processor):
        if mark in prompt:
            raise InputError(
                f"the prompt contains {mark!r}, which this model uses as the place of a picture",
                hint="leave it out: the picture's place is in the template",
            )


def _picture_marks(model: Any, processor: Any) -> list[str]:
    """Return the texts that stand for a picture before or after the processor repeats them for its features."""
    tokenizer = tokenizer_of(processor)
    marks = [getattr(processor, name, None) for name in ("image_token", "boi_token")]
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        marks += tokenizer.convert_ids_to_tokens(sorted(placeholder_ids(model.config)))
    return [mark for mark in marks if isinstance(mark, str) and mark]


def _check_placeholders(
    model: Any, processor: Any, images: Sequence[Sequence[Image]], input_ids: Any, texts: Sequence[str]
) -> None:
    """Require a placeholder in each row with a picture; without one, the model would never see it."""
    known = placeholder_ids(model.config)
    for pictures, row, text in zip(images, input_ids.tolist(), texts, strict=True):
        if known and pictures and known.isdisjoint(row):
            raise _no_place(processor, text)


def _no_place(processor: Any, text: str) -> InputError:
    token = getattr(processor, "image_token", None) or "the model's image token"
    return InputError(
        f"the prompt has no place for the image: {text!r} has no image placeholder",
        hint=f"put {token} into the template",
    )
