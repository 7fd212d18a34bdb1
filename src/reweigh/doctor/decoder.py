"""What ``reweigh doctor MODEL --decoder NAME`` looks at: short answers, alone and in one batch, beside the base model's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.engines.verify import verify_edit
from reweigh.rivals import decoder as attached
from reweigh.text import DESCRIBE, Template

if TYPE_CHECKING:
    from PIL.Image import Image

LENGTH = 64
"""Most tokens of an answer."""
PROMPTS = (DESCRIBE, "What is in the image?")
"""Of two lengths, so that a batch has padding."""
SLACK, SHARE = 10, 1e-3
"""A batch may move logits this many times more than it moves the base model's, and by this share of their range."""


@dataclass
class Seen:
    """What a decoder did to the passes it was shown.

    Attributes:
        shapes: Shapes of the logits it returned.
        first: Logits (B, V) after each prompt, edited or not.
    """

    passes: int = 0
    edited: int = 0
    shapes: set[tuple[int, ...]] = field(default_factory=set)
    first: list[Tensor] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0


def examine_decoder(
    name: str,
    model: Any,
    processor: Any,
    pictures: Sequence[Image],
    *,
    template: Template | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Let a decoder and the base model answer about some pictures.

    Raises:
        InputError: Some pass's logits cannot be used; see ``verify_edit``.
    """
    sessions = {
        "base": attached("base", model, processor),
        "own": attached(name, model, processor, **options),
    }
    prompts = [PROMPTS[number % len(PROMPTS)] for number in range(len(pictures))]
    together, alone = ({side: Seen() for side in sessions} for _ in range(2))
    for side, session in sessions.items():  # first, so that the single answers are timed warm
        answer(session, pictures, prompts, together[side], template)
    for picture, prompt in zip(pictures, prompts, strict=True):
        for side, session in sessions.items():
            answer(session, [picture], [prompt], alone[side], template)
    own, base = alone["own"], alone["base"]
    words = [changed_words(*texts) for texts in zip(base.texts, own.texts, strict=True)]
    apart = {side: difference(together[side], alone[side]) for side in sessions}
    spread = max((float(row[row.isfinite()].std()) for row in base.first), default=0.0)
    return {
        "decoder": name,
        "title": sessions["own"].decoder.title or name,
        "passes": own.passes + together["own"].passes,
        "edited": own.edited + together["own"].edited,
        "shapes": sorted(own.shapes | together["own"].shapes),
        "words": {"changed": sum(words), "of": sum(len(text.split()) for text in base.texts)},
        "answers": {"changed": sum(map(bool, words)), "of": len(words)},
        "batch": {**apart, "holds": apart["own"] <= SLACK * apart["base"] + SHARE * spread},
        "cost": {side: 1000 * seen.seconds / max(1, seen.tokens) for side, seen in alone.items()},
    }


def answer(
    session: Any, pictures: Sequence[Image], prompts: Sequence[str], seen: Seen, template: Template | None
) -> None:
    """Answer one batch, and note what the decoder did and how long it took."""
    inputs = session.prepare(pictures, prompts, template=template)
    with watched(session.decoder, seen):
        begin = clock(session.model)
        answers = session.respond(inputs, seed=0, max_new_tokens=LENGTH)
        seen.seconds += clock(session.model) - begin
    seen.texts += [one.text for one in answers]
    seen.tokens += sum(len(one.tokens) for one in answers)


@contextmanager
def watched(decoder: Any, seen: Seen) -> Iterator[None]:
    """Check what ``edit`` returns in every pass, where an engine checks each shape once."""
    edit, is_first = decoder.edit, True

    @wraps(edit)
    def noted(forward: Any) -> Any:
        nonlocal is_first
        edited = edit(forward)
        seen.passes += 1
        if edited is not None:
            verify_edit(decoder, forward.logits, edited)
            seen.edited += 1
            seen.shapes.add(tuple(edited.shape))
        if is_first:
            seen.first.extend((forward.logits if edited is None else edited)[:, -1].float().cpu())
            is_first = False
        return edited

    decoder.edit = noted
    try:
        yield
    finally:
        del decoder.edit


def clock(model: Any) -> float:
    """Return the time once the model's device has nothing left to do."""
    if model.device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


def changed_words(base: str, own: str) -> int:
    """Return how many words of two texts differ.

    Examples:
        >>> changed_words("a dog and a cat", "a dog and a small bird"), changed_words("a dog", "a dog")
        (2, 0)
    """
    parts = SequenceMatcher(None, base.split(), own.split(), autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in parts if kind != "equal")


def difference(one: Seen, other: Seen) -> float:
    """Return the largest difference between the first logits of two runs, where both are finite."""
    found = 0.0
    for a, b in zip(one.first, other.first, strict=True):
        both = a.isfinite() & b.isfinite()
        found = max(found, float((a - b)[both].abs().max()))
    return found
