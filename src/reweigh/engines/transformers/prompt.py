"""The prompt of a ``generate`` call: where its images lie, found once, before the first forward pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from torch import Tensor

from reweigh.engines.transformers.arguments import bound, brings_image, look_up, past_length
from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.positions import layout
from reweigh.method.grids import Patch
from reweigh.runtime.sequence import Batch, Sequence

_numbers = count(1)

Layout = tuple[list[list[int]], list[list[Patch | None]]]
"""Visual columns of each row, and the patch of each."""


@dataclass(slots=True)
class Prompt:
    """The prompt of a running ``generate``.

    Attributes:
        start: Column at which it begins, after a kept cache.
        end: Column after it.
        inputs: What ``generate`` was called with, by name.
        passes: Forward passes made so far.
        batch: What travels with its cache, once the first pass began.
        rows: The sequence of each of its rows.
    """

    start: int
    end: int
    inputs: Mapping[str, Any]
    columns: list[list[int]]
    patches: list[list[Patch | None]]
    number: int = field(default_factory=lambda: next(_numbers))
    passes: int = 0
    batch: Batch | None = None
    rows: list[Sequence] = field(default_factory=list)


def read_prompt(
    anatomy: Anatomy, generate: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Prompt | None:
    """The prompt that a ``generate`` call brings; ``None`` where it brings no token ids and no image."""
    given = bound(inspect.signature(generate), args, kwargs)
    configs = (given.get("generation_config"), getattr(anatomy.language_model, "generation_config", None))
    if any(look_up(source, "assistant_early_exit") is not None for source in (given, *configs)):
        raise UnsupportedError(
            "assistant_early_exit skips decoder blocks, so their states cannot be read",
            hint="use assistant_model or prompt_lookup_num_tokens instead",
        )
    ids = given.get("input_ids")
    ids = given.get("inputs") if ids is None else ids
    if ids is None or not hasattr(ids, "ndim") or ids.ndim != 2 or ids.is_floating_point():
        if any(given.get(name) is not None for name in ("inputs_embeds", "pixel_values")):
            raise UnsupportedError(
                "generate was called without input_ids, so the image's positions cannot be told",
                hint="pass the processor's input_ids along",
            )
        return None
    past = past_length(given.get("past_key_values"))
    mask = given.get("attention_mask")
    whole = past > 0 and (mask is None or mask.shape[1] == ids.shape[1])
    fresh = ids[:, past:] if whole else ids
    return Prompt(past, past + fresh.shape[1], given, *visual_layout(anatomy, fresh, given))


def visual_layout(anatomy: Anatomy, ids: Tensor, inputs: Mapping[str, Any]) -> Layout:
    """Visual columns and patches of each row of some token ids."""
    rows = layout(anatomy.family, anatomy.config, ids, inputs)
    return [[column for column, _ in row] for row in rows], [[patch for _, patch in row] for row in rows]


def missing_image(prompt: Prompt | None) -> ReweighError:
    """Why a pass has image placeholders but no image."""
    if prompt is None or not brings_image(prompt.inputs):
        return InputError(
            "the prompt holds image placeholders, but no image was given",
            hint="pass all outputs of the processor (pixel_values too) together with its input_ids",
        )
    return UnsupportedError(
        "generate did not hand the image on to the pass that holds its placeholders, so the model never sees it; "
        "transformers does so when it prefills in chunks",
        hint="leave prefill_chunk_size out for prompts with images",
    )
