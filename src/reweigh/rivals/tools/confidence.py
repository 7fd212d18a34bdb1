"""Internal confidence of a word (Jiang et al., ICLR 2025): the probability that image positions give it, in any layer.

Every index of ``hidden_states`` is read through the head, the last one after the final norm and all others raw, in one
forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.engines.transformers.check import own_description, tokenize
from reweigh.engines.transformers.manager import HookManager
from reweigh.engines.transformers.measure import forward_options
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.processor import tokenizer_of
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.images import read_image
from reweigh.method.check import Checked, CheckedToken
from reweigh.method.evidence import over_grid
from reweigh.method.grids import Patch
from reweigh.method.lens import Lens
from reweigh.runtime.decoder import Decoder
from reweigh.runtime.forward import Pass

if TYPE_CHECKING:
    from PIL.Image import Image

PLAIN = frozenset({"blip-2", "instructblip", "llava_next"})
"""Families for which the authors take the plain softmax; the 50 largest elsewhere."""

TOP = 50


def top_probabilities(logits: Tensor, top: int | None = TOP) -> Tensor:
    """The softmax over the ``top`` largest of logits (..., V), 0 elsewhere; tokens that tie with the last one stay.

    ``top=None`` is the plain softmax.
    """
    log_probs = logits.float().log_softmax(-1)
    if top is not None and top < logits.shape[-1]:
        least = log_probs.topk(top, dim=-1).values[..., -1:]
        log_probs = log_probs.masked_fill(log_probs < least, float("-inf"))
    return log_probs.softmax(-1)


@dataclass(frozen=True)
class Confidence:
    """How sure one row's image positions are of some tokens.

    Attributes:
        tokens: Token ids, K of them.
        values: Probabilities (K, N + 1, P), float32: by token, index of ``hidden_states`` and visual position.
        positions: The visual positions P in the sequence.
        patches: Where each lies in its image; ``None`` where the family has no grid.
    """

    tokens: tuple[int, ...]
    values: Tensor
    positions: tuple[int, ...]
    patches: tuple[Patch | None, ...]

    def of(self, tokens: Sequence[int] | None = None) -> float:
        """Internal confidence of a word: the largest probability of any of its tokens, anywhere."""
        return float(self._word(tokens).max())

    def grid(self, tokens: Sequence[int] | None = None, *, image: int = 0, tile: int = 0) -> Tensor:
        """Localisation: the largest probability over tokens and layers, (rows, cols) of one tile of one image."""
        return over_grid(self._word(tokens).amax(dim=(0, 1)), self.patches, image=image, tile=tile)

    def localise(
        self, size: tuple[int, int], tokens: Sequence[int] | None = None, *, image: int = 0, tile: int = 0
    ) -> Tensor:
        """The grid brought to a picture's (width, height) by bilinear interpolation, (height, width)."""
        cells = self.grid(tokens, image=image, tile=tile).nan_to_num(0.0)
        grown = torch.nn.functional.interpolate(cells[None, None], size=size[::-1], mode="bilinear")
        return grown[0, 0]

    def _word(self, tokens: Sequence[int] | None) -> Tensor:
        if tokens is None:
            return self.values
        if not tokens or not set(tokens) <= set(self.tokens):
            raise InputError(f"tokens {list(tokens)} are not among those read: {list(self.tokens)}")
        return self.values[[self.tokens.index(token) for token in tokens]]


@torch.no_grad()
def read_confidence(
    lens: Lens, states: Sequence[Tensor], tokens: Sequence[int], *, top: int | None = TOP
) -> Tensor:
    """Probabilities (K, N + 1, P) of tokens, from the residual states (P, d) of index 0 (embeddings) to N, all raw."""
    ids = torch.tensor(list(tokens), dtype=torch.int64)
    layers = []
    for index, stream in enumerate(states):
        parts = []
        for start in range(0, stream.shape[0], lens.chunk):
            some = stream[start : start + lens.chunk]
            logits = lens.read(some, norm=index == len(states) - 1)
            parts.append(top_probabilities(logits, top)[:, ids.to(logits.device)].cpu())
            del logits  # or two chunks would live while the next is computed
        layers.append(torch.cat(parts))
    return torch.stack(layers).permute(2, 0, 1).contiguous()


class _Reader(Decoder):
    """Reads the states of visual positions after every block, and edits nothing."""

    def __init__(self, anatomy: Anatomy, tokens: Sequence[int], top: int | None) -> None:
        super().__init__(anatomy)
        self.tokens = tuple(tokens)
        self.top = top
        self.layers = frozenset(range(-1, len(anatomy.blocks)))
        self.lens = Lens(anatomy.norm, anatomy.head)
        self.found: list[Confidence | None] = []

    def edit(self, forward: Pass) -> None:
        self.found = [None] * len(forward.rows)
        for row, sequence, columns in forward.new():
            states = [forward.states[layer][row, columns] for layer in sorted(self.layers)]
            values = read_confidence(self.lens, states, self.tokens, top=self.top)
            where = tuple(sequence.positions), tuple(sequence.patches)
            self.found[row] = Confidence(self.tokens, values, *where)


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
    with HookManager.of(anatomy).serving(reader.request()), torch.no_grad():
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
class TextConfidence:
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
) -> TextConfidence:
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
    return TextConfidence(text, tuple(words), found)
