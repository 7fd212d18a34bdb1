"""What ``forward`` and ``generate`` were called with: arguments by name, the prompt, where its images lie, and the cache.

The batch of a key-value cache is kept on the cache itself. It lives as long as the cached positions do, a copied cache has a
copy of it, and it follows when the cache's rows are reordered, repeated or dropped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from reweigh.engines.base import Prompt
from reweigh.engines.rows import Batch
from reweigh.engines.run import Run
from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.positions import layout

TOKEN_TYPES = ("mm_token_type_ids", "token_type_ids")
"""Inputs that say of each token whether it stands for an image."""

TEXTS = ("input_ids", "attention_mask", "position_ids", "past_key_values", "labels")
"""Arguments that hold no image."""


def read_prompt(
    anatomy: Anatomy,
    run: Run,
    generate: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Prompt | None:
    """Read the prompt of a ``generate`` call; ``None`` if it has neither token ids nor an image."""
    given = bound(inspect.signature(generate), args, kwargs)
    configs = (given.get("generation_config"), getattr(anatomy.language_model, "generation_config", None))
    early = [
        given.get("assistant_early_exit"),
        *(getattr(one, "assistant_early_exit", None) for one in configs),
    ]
    if any(one is not None for one in early):
        raise UnsupportedError(
            "assistant_early_exit skips decoder blocks, so their states cannot be read",
            hint="use assistant_model or prompt_lookup_num_tokens instead",
        )
    ids = given.get("input_ids")
    ids = given.get("inputs") if ids is None else ids
    if ids is None or not hasattr(ids, "ndim") or ids.ndim != 2 or ids.is_floating_point():
        if any(given.get(name) is not None for name in ("inputs_embeds", "pixel_values")):
            raise UnsupportedError(
                "generate was called without input_ids, so the image's positions are unknown",
                hint="pass the processor's input_ids along",
            )
        return None
    past = past_length(given.get("past_key_values"))
    mask = given.get("attention_mask")
    whole = past > 0 and (mask is None or mask.shape[1] == ids.shape[1])
    fresh = ids[:, past:] if whole else ids
    visual = layout(anatomy.family, anatomy.config, fresh, given)
    end = past + fresh.shape[1]
    return Prompt(run=run, inputs=given, start=past, end=end, visual=visual, generates=True)


def missing_image(prompt: Prompt) -> ReweighError:
    """Return the error for a pass that has image placeholders but no image."""
    if not prompt.generates or not brings_image(prompt.inputs):
        return InputError(
            "the prompt has image placeholders, but no image was given",
            hint="pass all outputs of the processor (pixel_values too) together with its input_ids",
        )
    return UnsupportedError(
        "generate did not hand the image on to the pass that holds its placeholders, so the model never sees it; "
        "transformers does so when it prefills in chunks",
        hint="leave prefill_chunk_size out for prompts with images",
    )


def check_arguments(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Return the rows and columns of a forward pass; refuse arguments that would make the edit wrong."""
    if isinstance(arguments.get("logits_to_keep"), Tensor):
        raise UnsupportedError(
            "logits_to_keep picks single columns, so their positions in the sequence are unknown",
            hint="pass the number of last columns to keep",
        )
    if arguments.get("labels") is not None:
        raise UnsupportedError(
            "labels were given: the model would return the loss of the unedited logits",
            hint="leave labels out and compute the loss from the output's logits",
        )
    tokens: Any = arguments.get("input_ids")
    tokens = arguments.get("inputs_embeds") if tokens is None else tokens
    if tokens is None:
        raise UnsupportedError("a forward pass had neither input_ids nor inputs_embeds")
    if not isinstance(tokens, Tensor) or tokens.ndim not in (2, 3):
        kind = type(tokens).__name__
        seen = f"{kind} of shape {tuple(tokens.shape)}" if hasattr(tokens, "shape") else kind
        raise InputError(
            f"the prompt's tokens are a {seen}; a tensor (rows, columns) was expected",
            hint='pass what the processor returned, with return_tensors="pt"',
        )
    return tokens.shape[0], tokens.shape[1]


def brings_image(arguments: Mapping[str, Any]) -> bool:
    """Whether anything given could hold an image: pixels, features or finished embeddings."""
    parts = tree_leaves([value for name, value in arguments.items() if name not in TEXTS])
    return any(isinstance(part, Tensor) and part.is_floating_point() for part in parts)


def token_ids(arguments: Mapping[str, Any]) -> Tensor:
    """Return the ids of a pass; without them the positions of its images are unknown."""
    ids: Tensor | None = arguments.get("input_ids")
    if ids is None:
        raise UnsupportedError(
            "a forward pass had inputs_embeds but no input_ids, so the image's positions are unknown",
            hint="pass input_ids, or use generate",
        )
    return ids


def bound(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments by name, including those swallowed by ``**kwargs``."""
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


def prompt_ids(inputs: Mapping[str, Any]) -> Tensor:
    """Return the prompt's token ids (B, T)."""
    ids = inputs.get("input_ids")
    ids = inputs.get("inputs") if ids is None else ids
    if not isinstance(ids, Tensor):
        raise UnsupportedError("a second branch needs the prompt's input_ids")
    return ids


def followed_by(inputs: Mapping[str, Any], tokens: Tensor) -> dict[str, Any]:
    """Return a prompt's inputs followed by further text tokens (B, n)."""
    longer = {**inputs, "input_ids": torch.cat([prompt_ids(inputs), tokens], dim=1)}
    for name in (*TOKEN_TYPES, "attention_mask"):
        if inputs.get(name) is not None:
            more = tokens.new_ones(tokens.shape) if name == "attention_mask" else torch.zeros_like(tokens)
            longer[name] = torch.cat([inputs[name], more.to(inputs[name].dtype)], dim=1)
    return longer


BATCH = "_reweigh_batch"
"""Attribute of a cache that holds its batch."""


def batch_on(cache: Any) -> Batch | None:
    """Return the batch on a cache, if any."""
    return None if cache is None else vars(cache).get(BATCH)


def past_length(cache: Any, batch: Batch | None = None) -> int:
    """Return the columns in a cache; its batch, if given, avoids waiting for a cache that counts on its device."""
    if cache is None or not hasattr(cache, "get_seq_length"):
        return 0
    length = cache.get_seq_length()
    is_known = batch is not None and isinstance(length, Tensor) and vars(cache).get(BATCH) is batch
    return batch.seen if batch is not None and is_known else int(length)


def leave_batch(cache: Any, batch: Batch) -> None:
    """Put a batch on a cache; from now on it follows the cache's rows."""
    vars(cache)[BATCH] = batch
    if not isinstance(cache, _Followed):
        kind: Any = type(cache)
        cache.__class__ = _followed(kind)


class _Followed:
    """Mixed into the cache's class."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)  # type: ignore[misc]
        vars(self)[BATCH].reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        rows = _row_numbers(self, indices)
        super().batch_select_indices(indices)  # type: ignore[misc]
        vars(self)[BATCH].reorder(rows)

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)  # type: ignore[misc]
        vars(self)[BATCH].repeat(repeats)


def _row_numbers(cache: Any, indices: Any) -> Tensor:
    """Return the numbers of chosen rows, given as numbers, counted from the end, or as a mask."""
    rows = torch.as_tensor(indices)
    if rows.dtype == torch.bool:
        return rows.nonzero().flatten()
    counts = (
        len(layer.keys) for layer in getattr(cache, "layers", ()) if getattr(layer, "keys", None) is not None
    )
    count = next(counts, None)
    return rows if count is None else rows % count


@functools.cache
def _followed(kind: Any) -> Any:
    return type(kind.__name__, (_Followed, kind), {"__module__": kind.__module__})
