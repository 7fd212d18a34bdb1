"""Inputs of a second branch, made from what ``generate`` was given: unchanged, without image, or with other ids.

A branch reads raw pixels, never the features that ``generate`` encodes ahead: those show the clean image.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.arguments import TOKEN_TYPES, prompt_ids
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.processor import tokenizer_of

NOT_FORWARDED = frozenset(
    {"inputs_embeds", "labels", "logits_to_keep", "mm_encoder_outputs", "past_key_values", "position_ids"}
    | {"use_cache", "output_attentions", "output_hidden_states", "return_dict", "cache_position"}
)
TAG_NAMES = ("vision_start_token_id", "vision_end_token_id", "boi_token_index", "eoi_token_index")
TAG_TOKENS = ("start_image_token", "end_image_token", "boi_token", "eoi_token")


def forwardable(anatomy: Anatomy, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``generate``'s arguments that the model's forward reads; a picture must be among them."""
    pixels(inputs)
    known = inspect.signature(anatomy.model.forward).parameters
    kept = {
        name: value
        for name, value in inputs.items()
        if name in known and name not in NOT_FORWARDED and value is not None
    }
    kept["input_ids"] = prompt_ids(inputs)
    return kept


def pixels(inputs: Mapping[str, Any]) -> Tensor:
    """Return the picture as the processor made it."""
    values = inputs.get("pixel_values")
    if not isinstance(values, Tensor):
        raise UnsupportedError(
            "generate was given no pixel_values, so the picture cannot be changed for a second branch",
            hint="pass the processor's pixel_values, not encoded features",
        )
    return values


def picture_parts(anatomy: Anatomy, inputs: Mapping[str, Any]) -> list[Tensor]:
    """Return the pixels of each row that has an image: its images, tiles or patches together."""
    picture, ids = pixels(inputs), prompt_ids(inputs)
    if picture.ndim == 5:  # (images, tiles, channels, height, width)
        return list(torch.split(picture, 1))
    tokens = torch.isin(ids, torch.tensor(anatomy.image_tokens, device=ids.device)).sum(dim=1)
    shares = (tokens * picture.shape[0]) // tokens.sum()
    found = [share for share in shares.tolist() if share]
    return list(torch.split(picture, found if sum(found) == picture.shape[0] else [picture.shape[0]]))


def rows_of(inputs: Mapping[str, Any]) -> list[list[int]]:
    """Return the prompt's ids by row, without padding."""
    ids, mask = prompt_ids(inputs), inputs.get("attention_mask")
    seen = torch.ones_like(ids) if mask is None else mask
    return [row[kept.bool()].tolist() for row, kept in zip(ids, seen, strict=True)]


def span(row: Sequence[int], tokens: Collection[int]) -> tuple[int, int]:
    """Return the place of the first of some tokens in a row, and the place after the last; (0, 0) if there is none."""
    places = [place for place, token in enumerate(row) if token in tokens]
    return (places[0], places[-1] + 1) if places else (0, 0)


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> dict[str, Tensor]:
    """Pad rows of any length on the left; return their ids and attention mask."""
    width = max(len(row) for row in rows)
    ids = [[0] * (width - len(row)) + list(row) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return {
        "input_ids": torch.tensor(ids, device=device),
        "attention_mask": torch.tensor(mask, device=device),
    }


def with_ids(anatomy: Anatomy, inputs: Mapping[str, Any], rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Replace the ids of inputs, padded on the left, and their token types where the family has them."""
    made = {**inputs, **padded(rows, prompt_ids(inputs).device)}
    ids = made["input_ids"]
    for name in TOKEN_TYPES:
        if name in inputs:
            made[name] = torch.isin(ids, torch.tensor(anatomy.image_tokens, device=ids.device)).to(ids.dtype)
    return made


def without_image(anatomy: Anatomy, processor: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the image tokens from a prompt, and the tags that enclose them."""
    tags, image = image_tags(anatomy, processor), set(anatomy.image_tokens)
    rows = []
    for row in rows_of(inputs):
        beside = [row[max(0, index - 1) : index + 2] for index in range(len(row))]
        rows.append(
            [
                token
                for token, near in zip(row, beside, strict=True)
                if token not in image and not (token in tags and image & set(near))
            ]
        )
    if not all(rows):
        raise InputError(
            "a prompt holds nothing but its image, so there is no branch without image",
            hint="add a question or an instruction",
        )
    return padded(rows, prompt_ids(inputs).device)


def image_tags(anatomy: Anatomy, processor: Any) -> frozenset[int]:
    """Return the ids of the tokens that open and close an image in the prompt."""
    found = {value for name in TAG_NAMES if isinstance(value := getattr(anatomy.config, name, None), int)}
    tokenizer = tokenizer_of(processor)
    for name in TAG_TOKENS:
        text = getattr(processor, name, None) or getattr(tokenizer, name, None)
        if isinstance(text, str):
            found.add(int(tokenizer.convert_tokens_to_ids(text)))
    return frozenset(found)


def word_tokens(processor: Any, word: str) -> list[int]:
    """Return the token ids of a word as it stands inside a sentence."""
    tokenizer = tokenizer_of(processor)
    alone = list(tokenizer(word, add_special_tokens=False)["input_ids"])
    pieces = tokenizer.convert_ids_to_tokens(alone)
    if pieces and pieces[0].startswith("▁"):
        return alone
    return list(tokenizer(f" {word}", add_special_tokens=False)["input_ids"])
