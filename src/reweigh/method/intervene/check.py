"""The detector: which words of a text lack support in the image. The same evidence, without any intervention.

Evidence depends on the image and the prompt only, so the text need not be fed to the model: its tokens are looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.engines.transformers.pairing import pair
from reweigh.errors import InputError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.images import read_image
from reweigh.method.measure.evidence import measure
from reweigh.method.register.table import ReferenceTable

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class CheckedToken:
    """One token of the text; the last three are ``None`` where it is not registered."""

    token: int
    text: str
    start: int
    end: int
    evidence: float | None
    reference: float | None
    strength: float | None


@dataclass(frozen=True)
class CheckedWord:
    """A run of tokens without white space; its strength is that of its first registered token."""

    text: str
    start: int
    end: int
    strength: float | None


@dataclass(frozen=True)
class Checked:
    """A text with the deficit of each of its tokens."""

    text: str
    tokens: tuple[CheckedToken, ...]

    def words(self) -> list[CheckedWord]:
        """Tokens joined to words as a reader sees them."""
        words: list[CheckedWord] = []
        for token in self.tokens:
            piece = self.text[token.start : token.end]
            if not piece.strip():
                continue
            start = token.start + len(piece) - len(piece.lstrip())
            end = token.start + len(piece.rstrip())  # a token may end in white space, as ".\n" does
            strength = token.strength
            if words and words[-1].end >= start:  # byte pieces of one character share their place
                before = words.pop()
                start, end = before.start, max(before.end, end)
                strength = before.strength if before.strength is not None else strength
            words.append(CheckedWord(self.text[start:end], start, end, strength))
        return words

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "text": self.text,
            "tokens": [
                {
                    "token": token.token,
                    "text": token.text,
                    "start": token.start,
                    "end": token.end,
                    "dmrr": token.evidence,
                    "b": token.reference,
                    "s": token.strength,
                }
                for token in self.tokens
            ],
            "words": [
                {"text": word.text, "start": word.start, "end": word.end, "s": word.strength}
                for word in self.words()
            ],
        }


def check(
    model: Any,
    processor: Any,
    image: str | Path | bytes | Image,
    text: str,
    *,
    table: ReferenceTable | str | Path,
    layer: int | None = None,
    prompt: str = DESCRIBE,
    template: str | None = None,
    force: bool = False,
) -> Checked:
    """Compare each token of ``text`` with its reference, given the image.

    Args:
        text: A description the model wrote, or any other.
        table: A reference table, its folder, or a Hub repository.
        prompt: The prompt the image is shown with; use the table's own.
    """
    anatomy = find_anatomy(model)
    table, lens = pair(anatomy, processor, table, layer=layer, force=force)
    ids, offsets = _tokenize(processor, text)
    inputs = build_inputs(model, processor, [read_image(image)], [prompt], template=template)
    found = measure(
        model, inputs, layers=[table.layer], dtype="float32" if lens.upcast else "native", chunk=lens.chunk
    )[0]
    if found is None:
        raise InputError("the prompt holds no image")
    evidence = found.at(table.layer)
    tokens = []
    for token, (start, end) in zip(ids, offsets, strict=True):
        reference = table.reference(token)
        value = float(evidence[token]) if reference is not None else None
        s = (
            None
            if reference is None or value is None
            else min(max((reference - value) / table.scale, 0.0), 1.0)
        )
        tokens.append(CheckedToken(token, text[start:end], start, end, value, reference, s))
    return Checked(text, tuple(tokens))


def _tokenize(processor: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    if not text.strip():
        raise InputError("the text to check is empty")
    tokenizer = getattr(processor, "tokenizer", processor)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError("checking a text needs a fast tokenizer, which knows where its tokens lie")
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(encoded["input_ids"]), [tuple(pair) for pair in encoded["offset_mapping"]]
