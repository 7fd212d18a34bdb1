"""Inputs of a second branch, made from what ``generate`` was given: as they are, without image, or disturbed.

A branch is fed by raw pixels, never by the features that ``generate`` encodes ahead: those show the clean image.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.arguments import prompt_ids
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.processor import tokenizer_of
from reweigh.runtime.sequence import Sequence as Row

NOT_FORWARDED = frozenset(
    {"inputs_embeds", "labels", "logits_to_keep", "mm_encoder_outputs", "past_key_values", "position_ids"}
    | {"use_cache", "output_attentions", "output_hidden_states", "return_dict", "cache_position"}
)
TAG_NAMES = ("vision_start_token_id", "vision_end_token_id", "boi_token_index", "eoi_token_index")
TAG_TOKENS = ("start_image_token", "end_image_token", "boi_token", "eoi_token")


def forwardable(anatomy: Anatomy, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``generate``'s arguments the model's forward takes as input."""
    known = inspect.signature(anatomy.model.forward).parameters
    kept = {
        name: value
        for name, value in inputs.items()
        if name in known and name not in NOT_FORWARDED and value is not None
    }
    kept["input_ids"] = prompt_ids(inputs)
    return kept


def pixels(inputs: Mapping[str, Any]) -> Tensor:
    """The picture as the processor gave it."""
    values = inputs.get("pixel_values")
    if not isinstance(values, Tensor):
        raise UnsupportedError(
            "generate was given no pixel_values, so the picture cannot be changed for a second branch",
            hint="pass the processor's pixel_values, not encoded features",
        )
    return values


def picture_parts(anatomy: Anatomy, inputs: Mapping[str, Any]) -> list[Tensor]:
    """The pixels of each row that has an image, in order: its images, tiles or patches together."""
    picture, ids = pixels(inputs), prompt_ids(inputs)
    if picture.ndim == 5:  # (images, tiles, channels, height, width)
        return list(torch.split(picture, 1))
    tokens = torch.isin(ids, torch.tensor(anatomy.image_tokens, device=ids.device)).sum(dim=1)
    shares = (tokens * picture.shape[0]) // tokens.sum()
    found = [share for share in shares.tolist() if share]
    return list(torch.split(picture, found if sum(found) == picture.shape[0] else [picture.shape[0]]))


def token_kinds(anatomy: Anatomy, ids: Tensor) -> Tensor:
    """One for image tokens, zero for text: the token types of families that tell them apart."""
    return torch.isin(ids, torch.tensor(anatomy.image_tokens, device=ids.device)).to(ids.dtype)


def rows_of(inputs: Mapping[str, Any]) -> list[list[int]]:
    """The prompt's ids by row, padding left out."""
    ids, mask = prompt_ids(inputs), inputs.get("attention_mask")
    seen = torch.ones_like(ids) if mask is None else mask
    return [row[kept.bool()].tolist() for row, kept in zip(ids, seen, strict=True)]


def image_spans(anatomy: Anatomy, inputs: Mapping[str, Any], sequence: Row) -> list[tuple[int, int]]:
    """The first and last place of each image among a row's ids, padding left out."""
    image = set(anatomy.image_tokens)
    ids, whole = rows_of(inputs)[sequence.row], prompt_ids(inputs)[sequence.row].tolist()
    places, columns = ([place for place, token in enumerate(some) if token in image] for some in (ids, whole))
    shown = dict(zip(sequence.positions, sequence.patches, strict=True))
    found: list[tuple[int, int]] = []
    last = None
    for place, column in zip(places, columns, strict=True):
        patch = shown.get(column)  # none where a line of the image ends, and where the family has no grid
        if not found or (patch is not None and last is not None and patch.image != last):
            found.append((place, place))
        found[-1] = found[-1][0], place
        last = last if patch is None else patch.image
    return found


def padded(rows: Sequence[Sequence[int]], device: torch.device, pad: int = 0) -> dict[str, Tensor]:
    """Ids and attention mask of rows of any lengths, padded on the left."""
    width = max(len(row) for row in rows)
    ids = [[pad] * (width - len(row)) + list(row) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return {
        "input_ids": torch.tensor(ids, device=device),
        "attention_mask": torch.tensor(mask, device=device),
    }


def without_image(anatomy: Anatomy, processor: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The prompt with its image tokens, and the tags that enclose them, taken out."""
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
    """Ids of the tokens that open and close an image in the prompt."""
    found = {value for name in TAG_NAMES if isinstance(value := getattr(anatomy.config, name, None), int)}
    tokenizer = tokenizer_of(processor)
    for name in TAG_TOKENS:
        text = getattr(processor, name, None) or getattr(tokenizer, name, None)
        if isinstance(text, str):
            found.add(int(tokenizer.convert_tokens_to_ids(text)))
    return frozenset(found)


def insert(
    row: Sequence[int], words: Sequence[int], tokenizer: Any, *, after: int = 0, tags: Collection[int] = ()
) -> list[int]:
    """Put words before the first token that says something: no special token, no image tag, no white space."""
    mute = {*tokenizer.all_special_ids, *tags}
    index = after
    while index < len(row) and (row[index] in mute or not tokenizer.decode([row[index]]).strip()):
        index += 1
    return [*row[:index], *words, *row[index:]]
