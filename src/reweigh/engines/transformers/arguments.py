"""Reading the arguments of ``forward`` and ``generate``, whichever way they were given."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError, UnsupportedError

TOKEN_TYPES = ("mm_token_type_ids", "token_type_ids")
"""Inputs that say of each token whether it stands for an image."""


def token_ids(arguments: Mapping[str, Any]) -> Tensor:
    """The ids of a pass; without them nobody can tell where its images lie."""
    ids: Tensor | None = arguments.get("input_ids")
    if ids is None:
        raise UnsupportedError(
            "a forward pass had inputs_embeds but no input_ids, so the image's positions cannot be told",
            hint="pass input_ids, or use generate",
        )
    return ids


def brings_image(arguments: Mapping[str, Any]) -> bool:
    """Whether anything given could hold an image: pixels, features or finished embeddings."""
    texts = ("input_ids", "attention_mask", "position_ids", "past_key_values", "labels")
    return any(_holds_floats(value) for name, value in arguments.items() if name not in texts)


def _holds_floats(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.is_floating_point()
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_holds_floats(part) for part in parts)


def bound(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, those swallowed by ``**kwargs`` included."""
    if not args:
        return dict(kwargs)
    try:
        named = dict(signature.bind_partial(*args, **kwargs).arguments)
    except TypeError:
        return dict(kwargs)
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named |= named.pop(parameter.name, {})
    return named


def past_length(cache: Any, known: int | None = None) -> int:
    """Columns that a cache holds; ``known`` spares the wait for one that counts them on its device."""
    if cache is None or not hasattr(cache, "get_seq_length"):
        return 0
    length = cache.get_seq_length()
    return known if known is not None and isinstance(length, Tensor) else int(length)


def look_up(source: Any, name: str) -> Any:
    """A value by name from a mapping or a configuration, ``None`` where it is not set."""
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def rows_and_columns(tokens: Any) -> tuple[int, int]:
    """The shape of a pass's ids or embeddings."""
    if tokens is None:
        raise UnsupportedError("a forward pass had neither input_ids nor inputs_embeds")
    if not isinstance(tokens, Tensor) or tokens.ndim not in (2, 3):
        kind = type(tokens).__name__
        seen = f"{kind} of shape {tuple(tokens.shape)}" if hasattr(tokens, "shape") else kind
        raise InputError(
            f"the prompt's tokens are a {seen}; a tensor (rows, columns) was expected",
            hint='give what the processor returned, with return_tensors="pt"',
        )
    return tokens.shape[0], tokens.shape[1]


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of a forward pass under which the edit could not be right."""
    if isinstance(arguments.get("logits_to_keep"), Tensor):
        raise UnsupportedError(
            "logits_to_keep picks single columns, so their positions in the sequence cannot be told",
            hint="give a number of last columns",
        )
    if arguments.get("labels") is not None:
        raise UnsupportedError(
            "labels were given: the model would return the loss of the unedited logits",
            hint="leave labels out and compute the loss from the output's logits",
        )


def prompt_ids(inputs: Mapping[str, Any]) -> Tensor:
    """The prompt's token ids (B, T)."""
    ids = inputs.get("input_ids")
    ids = inputs.get("inputs") if ids is None else ids
    if not isinstance(ids, Tensor):
        raise UnsupportedError("a second branch needs the prompt's input_ids")
    return ids


def followed_by(inputs: Mapping[str, Any], tokens: Tensor) -> dict[str, Any]:
    """A prompt's inputs with further tokens (B, n) of text behind it."""
    longer = {**inputs, "input_ids": torch.cat([prompt_ids(inputs), tokens], dim=1)}
    for name in (*TOKEN_TYPES, "attention_mask"):
        if inputs.get(name) is not None:
            more = tokens.new_ones(tokens.shape) if name == "attention_mask" else torch.zeros_like(tokens)
            longer[name] = torch.cat([inputs[name], more.to(inputs[name].dtype)], dim=1)
    return longer
