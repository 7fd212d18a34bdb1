"""How sure the positions of a picture are of words: internal confidence and localisation, in one forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reweigh.engines.transformers.check import own_description, tokenize
from reweigh.engines.transformers.measure import forward_options
from reweigh.engines.transformers.tap import Tap
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.processor_parts import tokenizer_of
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.images import read_image
from reweigh.method.check import Checked, CheckedToken
from reweigh.method.lens import Lens
from reweigh.rivals.tools.internal_confidence import TOP, Confidence, read_confidence
from reweigh.runtime.decoder import Decoder, ForwardPass

if TYPE_CHECKING:
    from PIL.Image import Image

PLAIN = frozenset({"blip-2", "instructblip", "llava_next"})
"""Families for which the authors take the plain softmax; the 50 largest elsewhere."""


class _Reader(Decoder):
    """Reads the states of visual positions after every block, and edits nothing."""

    def __init__(self, anatomy: Anatomy, tokens: Sequence[int], top: int | None) -> None:
        super().__init__(anatomy)
        self.tokens = tuple(tokens)
        self.top = top
        self.layers = frozenset(range(-1, len(anatomy.blocks)))
        self.lens = Lens(anatomy.norm, anatomy.head)
        self.found: list[Confidence | None] = []

    def edit(self, forward: ForwardPass) -> None:
        for row, columns in enumerate(forward.new_columns() or [[] for _ in forward.trail.columns]):
            if not columns:
                self.found.append(None)
                continue
            states = [forward.states[layer][row * forward.repeat, columns] for layer in sorted(self.layers)]
            values = read_confidence(self.lens, states, self.tokens, top=self.top)
            where = tuple(forward.trail.columns[row]), tuple(forward.trail.patches[row])
            self.found.append(Confidence(self.tokens, values, *where))


def confidence(
    model: Any, inputs: Mapping[str, Any], tokens: Sequence[int], *, top: int | str | None = "family"
) -> list[Confidence | None]:
    """How sure the image positions of each row are of some tokens, at every layer.

    Args:
        model: A transformers vision-language model.
        inputs: What its processor gave, on the model's device.
        tokens: Token ids.
        top: The softmax runs over this many of the largest logits, over all of them for ``None``; "family" is the
            authors' choice: 50, and all for InstructBLIP and LLaVA-NeXT.

    Returns:
        One ``Confidence`` per row; ``None`` for a row without image.
    """
    anatomy = find_anatomy(model)
    if isinstance(top, str):
        top = None if anatomy.family.name in PLAIN else TOP
    wrong = [token for token in tokens if not 0 <= token < anatomy.vocab_size]
    if not tokens or wrong:
        raise InputError(f"tokens {wrong or list(tokens)} cannot be read", hint="give ids of the head's rows")
    reader = _Reader(anatomy, tokens, top)
    with Tap.of(anatomy).serving(reader.request()), torch.no_grad():
        anatomy.model(**{**inputs, **forward_options(anatomy)})
    if not any(reader.found):
        raise InputError("the prompt holds no image, so there is nothing to read")
    return reader.found


def word_tokens(processor: Any, word: str) -> list[int]:
    """Token ids of a word as it stands inside a sentence."""
    tokenizer = tokenizer_of(processor)
    alone = list(tokenizer(word, add_special_tokens=False)["input_ids"])
    pieces = tokenizer.convert_ids_to_tokens(alone)
    if pieces and pieces[0].startswith("▁"):
        return alone
    return list(tokenizer(f" {word}", add_special_tokens=False)["input_ids"])


@dataclass(frozen=True)
class ConfidentWord:
    """A word of a text, its tokens that hold a letter or a digit, and its internal confidence."""

    text: str
    start: int
    end: int
    tokens: tuple[int, ...]
    confidence: float


@dataclass(frozen=True)
class Confided:
    """A text with the internal confidence of its words."""

    text: str
    words: tuple[ConfidentWord, ...]
    confidence: Confidence

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        words = [
            {"text": word.text, "start": word.start, "end": word.end, "confidence": word.confidence}
            for word in self.words
        ]
        return {"text": self.text, "words": words}


def word_pieces(processor: Any, text: str) -> list[tuple[int, int, tuple[int, ...]]]:
    """Start, end and token ids of each word of a text; pieces and edges without letter or digit are left out."""
    ids, offsets = tokenize(processor, text)
    blank = [
        CheckedToken(token, text[start:end], start, end, None, None, None)
        for token, (start, end) in zip(ids, offsets, strict=True)
    ]
    found = []
    for word in Checked(text, tuple(blank)).words():
        inside = [place for place in range(word.start, word.end) if text[place].isalnum()]
        if not inside:
            continue
        own = [
            one.token
            for one in blank
            if one.start < word.end and one.end > word.start and any(map(str.isalnum, one.text))
        ]
        if own:
            found.append((inside[0], inside[-1] + 1, tuple(dict.fromkeys(own))))
    return found


def check_confidence(
    model: Any,
    processor: Any,
    image: str | Path | bytes | Image,
    text: str | None = None,
    *,
    prompt: str = DESCRIBE,
    template: str | None = None,
    top: int | str | None = "family",
) -> Confided:
    """The internal confidence of each word of ``text``, given the image; nothing is edited and no table is needed.

    Args:
        text: The model's own description of the image if not given.
    """
    text = own_description(model, processor, image, prompt, template) if text is None else text
    pieces = word_pieces(processor, text)
    if not pieces:
        raise InputError(f"{text!r} holds no word")
    inputs = build_inputs(model, processor, [read_image(image)], [prompt], template=template)
    wanted = sorted({token for _, _, own in pieces for token in own})
    found = confidence(model, inputs, wanted, top=top)[0]
    if found is None:
        raise InputError("the prompt holds no image")
    words = [ConfidentWord(text[start:end], start, end, own, found.of(own)) for start, end, own in pieces]
    return Confided(text, tuple(words), found)
