"""Who affirms or denies an object: the yes and no logits of one forward pass.

Nothing is generated and nothing is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from reweigh.errors import InputError
from reweigh.families.processor_parts import tokenizer_of

if TYPE_CHECKING:
    from PIL.Image import Image

YES, NO = "Yes", "No"
ROWS = 32


class Verifier(Protocol):
    """Says for each object how strongly it is affirmed; above 0 is yes."""

    def ask(self, picture: Image, names: Sequence[str]) -> list[float]:
        """One value for each object of one picture."""
        ...

    def describe(self) -> dict[str, Any]:
        """Who answers, for the record."""
        ...


def question(name: str) -> str:
    """Ask for an object's presence, as POPE does.

    Example:
        >>> question("apple")
        'Is there an apple in the image?'
    """
    return f"Is there {'an' if name[:1].lower() in 'aeiou' else 'a'} {name} in the image?"


class ModelVerifier:
    """A loaded model: g = z(yes) - z(no) at the last position of the prompt, each the log-sum over its spellings."""

    def __init__(self, model: Any, processor: Any, *, template: str | None = None, name: str = "") -> None:
        self.model = model
        self.processor = processor
        self.template = template
        self.name = name
        tokenizer = tokenizer_of(processor)
        self.yes, self.no = _spellings(tokenizer, YES), _spellings(tokenizer, NO)
        if not self.yes or not self.no:
            raise InputError(
                "this model's vocabulary has no single token for yes or for no, so its logits answer no question",
                hint="take another model as verifier",
            )

    def ask(self, picture: Image, names: Sequence[str]) -> list[float]:
        """One forward pass for each batch of questions about the picture."""
        import torch

        from reweigh.families.prompts import build_inputs

        gaps: list[float] = []
        for start in range(0, len(names), ROWS):
            part = names[start : start + ROWS]
            prompts = [question(name) for name in part]
            inputs = build_inputs(
                self.model, self.processor, [picture] * len(part), prompts, template=self.template
            )
            with torch.inference_mode():
                logits = self.model(**inputs, logits_to_keep=1).logits[:, -1].float()
            gap = logits[:, self.yes].logsumexp(-1) - logits[:, self.no].logsumexp(-1)
            gaps += gap.tolist()
        return gaps

    def describe(self) -> dict[str, Any]:
        """The model's name and the tokens that count as yes and as no."""
        return {"kind": "logits of one forward pass", "model": self.name, "yes": self.yes, "no": self.no}


def _spellings(tokenizer: Any, word: str) -> list[int]:
    """Single tokens that say the word: as it is, else in small letters; with and without a space before it."""
    for form in (word, word.lower()):
        found = set()
        for text in (form, f" {form}"):
            for token in tokenizer.encode(text, add_special_tokens=False):
                if tokenizer.decode([token]).strip() == form:
                    found.add(int(token))
        if found:
            return sorted(found)
    return []
