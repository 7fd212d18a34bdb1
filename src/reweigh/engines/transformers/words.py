"""Whole words for tokens that may be pieces of one: the model says how each would continue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from reweigh.engines.transformers.arguments import followed_by
from reweigh.families.processor import tokenizer_of

LONGEST = 5
"""Further tokens after which a word is taken to be whole."""


def whole_words(
    model: Any, processor: Any, inputs: Mapping[str, Any], said: Sequence[int], tokens: Sequence[int]
) -> dict[int, str]:
    """The word that each token begins or continues after ``said``, as the unedited model would write it greedily.

    One short generation for each token; punctuation needs none and is left out.
    """
    tokenizer = tokenizer_of(processor)
    before = tokenizer.decode(list(said), skip_special_tokens=True)
    found = {}
    for token in tokens:
        text = tokenizer.decode([*said, token], skip_special_tokens=True)
        if not text[len(before) :].strip()[:1].isalpha():
            continue
        fed = torch.tensor([[*said, token]], device=inputs["input_ids"].device)
        longer = followed_by(inputs, fed)
        greedy = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        with torch.no_grad():
            output = model.generate(**longer, max_new_tokens=LONGEST, **greedy)
        more = output[0, longer["input_ids"].shape[1] :].tolist()
        text = tokenizer.decode([*said, token, *more], skip_special_tokens=True)
        found[token] = word_at(text, len(before))
    return found


def word_at(text: str, place: int) -> str:
    """The word that covers a place of a text, or the next one behind it.

    >>> word_at("a fire hydrant", 3), word_at("a fire hydrant", 1)
    ('fire', 'fire')
    """
    while place < len(text) and text[place].isspace():
        place += 1
    start = end = place
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return text[start:end]
