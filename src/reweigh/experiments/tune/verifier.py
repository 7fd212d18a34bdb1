"""Who affirms or denies that a picture shows an object: a loaded model, or another one behind ``POST /v1/systemone``.

The answer is a probability read from logits; nothing is generated and nothing is parsed. ``transformers serve MODEL``, of a
model that sees pictures, is such a server.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol

from reweigh.benchmarks.judge.kinds import SystemOne
from reweigh.benchmarks.objects import question
from reweigh.errors import InputError
from reweigh.families.processor import tokenizer_of

if TYPE_CHECKING:
    from PIL.Image import Image

YES, NO = "Yes", "No"
BATCH = 32
"""Questions in one forward pass."""


class Verifier(Protocol):
    """Says for each object how strongly it is affirmed; above 0 is yes."""

    def ask(self, picture: Image, names: Sequence[str]) -> list[float]:
        """Return one value for each object of one picture."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return who answers, for the record."""
        ...


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
                "this model's vocabulary has no single token for yes or for no, so its logits cannot answer a question",
                hint="use another model as verifier",
            )

    def ask(self, picture: Image, names: Sequence[str]) -> list[float]:
        """Ask one forward pass for each batch of questions about the picture."""
        import torch

        from reweigh.families.prompts import build_inputs

        gaps: list[float] = []
        for start in range(0, len(names), BATCH):
            part = names[start : start + BATCH]
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
        """Return the model's name and the tokens that count as yes and as no."""
        return {"kind": "logits of one forward pass", "model": self.name, "yes": self.yes, "no": self.no}


def _spellings(tokenizer: Any, word: str) -> list[int]:
    """Return single tokens that say the word: as it is, else in lower case; with and without a space before it."""
    for form in (word, word.lower()):
        found = set()
        for text in (form, f" {form}"):
            for token in tokenizer.encode(text, add_special_tokens=False):
                if tokenizer.decode([token]).strip() == form:
                    found.add(int(token))
        if found:
            return sorted(found)
    return []


STATE = "Look at the picture."
ROWS = 16
"""Questions in one request; each is a row with the whole picture in the server's batch."""

LONGEST_SIDE = 2048
"""Pixels beyond which a picture is scaled down before it is sent."""

SURE = 1e-9
"""Probabilities are clipped this far from 0 and 1, so that log-odds stay finite."""


class ServedVerifier:
    """A model behind an address: g = log(p / (1 - p)), where p is its probability of yes."""

    def __init__(self, server: SystemOne) -> None:
        self.server = server

    def ask(self, picture: Image, names: Sequence[str]) -> list[float]:
        """Send one request for each batch of questions about the picture."""
        shown = [data_url(picture)]
        gaps: list[float] = []
        for start in range(0, len(names), ROWS):
            asked = [question(name) for name in names[start : start + ROWS]]
            gaps += [log_odds(p) for p in self.server.affirm(STATE, asked, shown)]
        return gaps

    def probe(self) -> None:
        """Ask about a gray picture: find an address, model or vocabulary that cannot answer before the long work starts."""
        from PIL import Image

        self.ask(Image.new("RGB", (224, 224), "gray"), ["person"])

    def __enter__(self) -> ServedVerifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def describe(self) -> dict[str, Any]:
        """Return the server's model and address, and what it is asked and shown."""
        return {**self.server.describe(), "state": STATE, "longest_side": LONGEST_SIDE}


def log_odds(p: float) -> float:
    """Return log(p / (1 - p)), bounded; above 0 exactly where yes is the likelier answer.

    Example:
        >>> log_odds(0.5), round(log_odds(0.9), 3), round(log_odds(1.0), 3)
        (0.0, 2.197, 20.723)
    """
    bounded = min(max(p, SURE), 1 - SURE)
    return math.log(bounded) - math.log1p(-bounded)


def data_url(picture: Image) -> str:
    """Encode the picture as a PNG in a data URL, scaled down only if a side is too long."""
    if max(picture.size) > LONGEST_SIDE:
        picture = picture.copy()
        picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    kept = BytesIO()
    picture.save(kept, "PNG")
    return "data:image/png;base64," + base64.b64encode(kept.getvalue()).decode()
