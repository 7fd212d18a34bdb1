"""HALC's walk through one answer: beams write greedily, look up words as these end, and are ranked.

The formulas come first: fields of view around a box, contrasts of those that differ most, survivors of a ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from reweigh.rivals.halc.grounding import Box, checked_box, singular
from reweigh.rivals.halc.pictures import crop, with_pictures
from reweigh.rivals.tools import Branch, read_prompt, reversed_js, rows_of, word_list
from reweigh.text import FUNCTION_WORDS

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.rivals.halc import HALC

CENTER: Box = (0.2, 0.2, 0.8, 0.8)
"""The box of a word that is not detected."""

FIELDS = 4
SMALLEST = 0.8
FLOOR = -1e3


def grown(box: Sequence[float], share: float) -> Box:
    """Grow a box by ``share`` of its width and height, half on each side, up to the picture's edges."""
    left, top, right, bottom = box
    wide, high = (right - left) * share / 2, (bottom - top) * share / 2
    return max(0.0, left - wide), max(0.0, top - high), min(1.0, right + wide), min(1.0, bottom + high)


def fields(box: Sequence[float], growth: float = 0.6) -> list[Box]:
    """Return four fields of view: the box shrunk by ``growth`` (0.8 at most), itself, and grown once and twice."""
    own = checked_box(box)
    larger = grown(own, growth)
    return [grown(own, -min(growth, SMALLEST)), own, larger, grown(larger, growth)]


def divergences(logits: Tensor) -> Tensor:
    """J_ij = ½ (KL(m | f_i) + KL(m | f_j)) of fields (F, V), m the mean distribution; the upper triangle (F, F)."""
    own = logits.float().log_softmax(-1)
    return torch.triu(reversed_js(own[:, None], own[None]) * logits.shape[-1], diagonal=1)


def contrasts(logits: Tensor, pairs: int, weight: float = 0.05) -> Tensor:
    """Return f_j - weight f_i and f_i - weight f_j of the ``pairs`` of fields (F, V) that differ most, (2 pairs, V).

    As in the official program, where the first logit is below -1000 the second becomes -1000, for later pairs, too.
    """
    best = divergences(logits).flatten().topk(pairs).indices.tolist()
    left, found = logits.float().clone(), []
    for i, j in (divmod(place, len(logits)) for place in best):
        for final, base in ((j, i), (i, j)):
            left[base] = left[base].masked_fill(left[final] < FLOOR, FLOOR)
            found.append(left[final] - weight * left[base])
    return torch.stack(found)


def survivors(scores: Sequence[float], texts: Sequence[str], count: int) -> list[int]:
    """Return the places of the ``count`` best different texts; of equal scores the later one comes first."""
    found: dict[str, int] = {}
    for place in np.argsort(np.asarray(scores), kind="stable")[::-1].tolist():
        found.setdefault(texts[place], place)
    return list(found.values())[:count]


WORD_MARKS = ("▁", "Ġ", ".")
"""A token begins a new word if its piece has one of these: a tokenizer's mark, or the end of a sentence."""


class Words:
    """Finds the words in a row of tokens.

    Args:
        tokenizer: The model's tokenizer.
        ends: Tokens that end an answer; they count as the beginning of a word.
    """

    def __init__(self, tokenizer: Any, ends: Collection[int]) -> None:
        self.tokenizer = tokenizer
        self.ends = frozenset(ends)

    def begins(self, token: int) -> bool:
        """Whether a token begins a new word."""
        if token in self.ends:
            return True
        piece = self.tokenizer.convert_ids_to_tokens(token) or ""
        return any(mark in piece for mark in WORD_MARKS)

    def last_start(self, tokens: Sequence[int]) -> int:
        """Return where the last word begins."""
        return next((place for place in range(len(tokens) - 1, -1, -1) if self.begins(tokens[place])), 0)

    def text(self, tokens: Sequence[int]) -> str:
        """Decode tokens, without special tokens and outer white space."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def without(self, tokens: Sequence[int], starts: Collection[int]) -> list[int]:
        """Remove the words that begin at the given places."""
        kept, dropped = [], False
        for place, token in enumerate(tokens):
            dropped = place in starts or (dropped and not self.begins(token))
            if not dropped:
                kept.append(token)
        return kept


def bare(word: str) -> str:
    """Strip punctuation and a final "s" from a word, as HALC looks it up."""
    for mark in (".", ",", "'", "]", "[", ")"):
        word = word.strip(mark)
    return word.removesuffix("s")


def may_be_entity(word: str) -> bool:
    """Whether a word has at least three letters and is not a function word; stands in for a noun test."""
    plain = word.lower()
    return len(plain) >= 3 and plain.isalpha() and plain not in FUNCTION_WORDS


def entity_test(given: Callable[[str], bool] | Sequence[str] | str | Path) -> Callable[[str], bool]:
    """Return a noun test: the given function, or whether a word is in the given list, ignoring a final "s"."""
    if callable(given):
        return given
    known = {singular(word) for word in word_list("is_entity", given)}
    return lambda word: singular(word) in known


HANDLED = 3
"""A word with more boxes than this is kept."""

DELETABLE = 8
"""Tokens that an answer must have before an undetected word is deleted."""


@dataclass(frozen=True)
class Beam:
    """An unfinished text: its cache, tokens, next-token scores (V,), and the starts of words looked up and deleted."""

    branch: Branch
    tokens: tuple[int, ...]
    scores: Tensor
    examined: frozenset[int] = frozenset()
    deleted: frozenset[int] = frozenset()
    done: bool = False


@dataclass
class Walk:
    """The answer to one prompt.

    Attributes:
        inputs: What ``generate`` was called with; the prompt is its row ``row``.
        picture: Its picture; ``None`` leaves the base model's greedy answer.
        prompt: Its ids as ``generate`` has them, padding included.
        processors: The caller's logits processors.
        criteria: The caller's stopping criteria.
        boxes: The boxes of each word that was looked up.
    """

    decoder: HALC
    inputs: Mapping[str, Any]
    row: int
    picture: Image | None
    prompt: Tensor
    processors: Any
    criteria: Any
    boxes: dict[str, Sequence[Box]] = field(default_factory=dict)

    def run(self, begin: Beam) -> Beam:
        """Write until every beam has ended; return the best."""
        beams = [begin]
        while not all(beam.done for beam in beams):
            options: list[Beam] = []
            ranked = False
            for beam in beams:
                token = None if beam.done else self.choose(beam)
                again = None if token is None else self.examine(beam, token)
                ranked = ranked or again is not None
                if again is None:
                    again = [beam if token is None else self.extend(beam, token)]
                options += again
            beams = self.rank(options) if ranked else options
        return beams[0]

    def choose(self, beam: Beam) -> int:
        """Choose the next token greedily, after the caller's logits processors."""
        return int(self.processors(self._whole(beam.tokens), beam.scores[None])[0].argmax())

    def extend(self, beam: Beam, token: int) -> Beam:
        """Return the beam with one more token."""
        tokens = (*beam.tokens, token)
        if bool(self.criteria(self._whole(tokens), None).all()):
            return replace(beam, tokens=tokens, done=True)
        given = torch.tensor([[token]], device=self.prompt.device)
        logits = beam.branch.step(given)
        has_image = self.picture is not None
        return replace(beam, tokens=tokens, scores=self.decoder.scores(logits, has_image=has_image)[0])

    def examine(self, beam: Beam, token: int) -> list[Beam] | None:
        """Return the beams that rewrite the last word, if ``token`` ends a word that is looked up."""
        words, tokens = self.decoder.words, beam.tokens
        if self.picture is None or not tokens or not words.begins(token):
            return None
        start = words.last_start(tokens)
        word = bare(words.text(tokens[start:]))
        if start in beam.examined or not self.is_looked_up(word):
            return None
        boxes = self.detected(word)
        if len(boxes) > HANDLED:
            return None
        box = min(boxes, key=lambda one: (one[2] - one[0]) * (one[3] - one[1])) if boxes else CENTER
        found = []
        for first in self.first_tokens(self.picture, tokens[:start], box):
            gone = self.decoder.deletes and not boxes and self.deletable(word, first, start)
            branch = beam.branch.copy(torch.tensor([0], device=self.prompt.device))
            branch.crop(len(tokens) - start)
            back = replace(
                beam,
                branch=branch,
                tokens=tokens[:start],
                examined=beam.examined | {start},
                deleted=beam.deleted | {start} if gone else beam.deleted,
            )
            found.append(self.extend(back, first))
        return found

    def is_looked_up(self, word: str) -> bool:
        """Whether a word may name a thing; pieces with a full stop or comma are not words."""
        return bool(word) and not {".", ","} & set(word) and self.decoder.is_entity(word)

    def detected(self, word: str) -> Sequence[Box]:
        """Return the boxes of a word; the detector is asked once for each word."""
        if word not in self.boxes:
            self.boxes[word] = list(self.decoder.detect(self.picture, word))
        return self.boxes[word]

    def first_tokens(self, picture: Image, before: Sequence[int], box: Sequence[float]) -> list[int]:
        """Return candidates for a word's first token, by one prefill of prompt and answer with four crops."""
        decoder, anatomy = self.decoder, self.decoder.anatomy
        parts = [crop(picture, view) for view in fields(box, decoder.growth)]
        ids = [*rows_of(self.inputs)[self.row], *before]
        inputs = with_pictures(
            anatomy, decoder.processor, self.inputs, self.row, ids, parts, template=decoder.template
        )
        views = read_prompt(anatomy, inputs, 0)[1][:, -1]
        scores = contrasts(views, decoder.candidates // 2, decoder.weight)
        scores = self.processors(self._whole(before).expand(len(scores), -1), scores)
        scores[:, list(anatomy.image_tokens)] = float("-inf")  # an answer has no picture to put there
        return list(dict.fromkeys(scores.argmax(dim=-1).tolist()))

    def deletable(self, word: str, first: int, start: int) -> bool:
        """Whether an undetected word was chosen again, far enough into the answer."""
        new = bare(self.decoder.words.text([first]))
        same = bool(new) and (new in word or word in new)
        return same and start + 1 >= DELETABLE

    def rank(self, options: Sequence[Beam]) -> list[Beam]:
        """Return the beams whose texts match the whole picture best."""
        texts = [self.text(beam) for beam in options]
        scores = [float(score) for score in self.decoder.match(self.picture, texts)]
        return [options[place] for place in survivors(scores, texts, self.decoder.beams)]

    def text(self, beam: Beam) -> str:
        """Return a beam's text without its deleted words, except the word just rewritten."""
        words = self.decoder.words
        return words.text(words.without(beam.tokens, beam.deleted - {words.last_start(beam.tokens)}))

    def _whole(self, tokens: Sequence[int]) -> Tensor:
        more = torch.tensor(tokens, dtype=self.prompt.dtype, device=self.prompt.device)
        return torch.cat([self.prompt, more])[None]
