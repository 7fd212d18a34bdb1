"""What figures do not show: texts that fall apart, repeat themselves, stop in the middle or equal another method's.

One forward pass over a finished text gives the probability that the model, unedited, assigns to each of its tokens; a text
with a token far below chance is broken. CHAIR_I falls if true objects are repeated, so a method that mentions far more
objects than the base, leaves many texts unfinished or empty, or breaks them is named under the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch

from reweigh.engines.transformers.arguments import followed_by
from reweigh.families.processor import tokenizer_of
from reweigh.families.prompts import build_inputs
from reweigh.lab.runs.results import Scored
from reweigh.lab.runs.texts import WORDS, warnings_about
from reweigh.lab.study import Call, Observer

if TYPE_CHECKING:
    from reweigh.lab.arms.compare.methods import Method

LOWEST = "lowest_probabilities"
"""The key of a batch's note for the lowest probability of a token in each of its texts."""
IMPROBABLE = 1e-3
"""Probability below which a token breaks its text."""
LOOKED_AT = 50
"""Records of each benchmark whose texts are read again."""
WORDY = 1.25
"""Repetition is noted if there are more mentions per caption than this many times the base's."""
BROKEN = 0.25
"""Broken texts are noted if their share exceeds the base's by more than this."""


class Fluency(Observer):
    """Notes how likely the model itself, unedited, finds the first texts."""

    def note(self, call: Call) -> Mapping[str, Any]:
        """Return the lowest probability of a token in each of them."""
        lowest, session, batch = [], call.session, call.batch
        for number, one in enumerate(call.answers):
            text = one.text.strip()
            if batch.start + number < LOOKED_AT and len(text.split()) >= WORDS:
                picture, prompt = [batch.pictures[number]], [batch.prompts[number]]
                inputs = build_inputs(
                    session.model, session.processor, picture, prompt, template=call.template
                )
                lowest.append(least_likely(session.model, session.processor, inputs, text))
        return {LOWEST: lowest}


def least_likely(model: Any, processor: Any, inputs: Mapping[str, Any], text: str) -> float:
    """Return the lowest probability of a token of a text after its prompt; the first token is left out."""
    tokenizer = tokenizer_of(processor)
    ids = tokenizer(f" {text}", add_special_tokens=False, return_tensors="pt")["input_ids"]
    ids = ids.to(inputs["input_ids"].device)
    if ids.shape[1] < 2:
        return 1.0
    with torch.no_grad():
        logits = model(**followed_by(inputs, ids)).logits[0, -ids.shape[1] : -1].float()
    own = logits.log_softmax(dim=-1).gather(1, ids[0, 1:, None])
    return float(own.min().exp())


def broken_share(notes: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of texts with an improbable token; 0 if none was read again."""
    lowest = [probability for note in notes for probability in note.get(LOWEST, [])]
    return sum(one < IMPROBABLE for one in lowest) / len(lowest) if lowest else 0.0


def degenerate(
    methods: Sequence[Method],
    scores: Mapping[str, Mapping[str, Scored]],
    broken: Mapping[str, Mapping[str, float]],
) -> list[str]:
    """Say what the figures of each method on each benchmark hide; ``broken`` are the shares of broken texts."""
    said = []
    for name, found in scores.items():
        base, *others = [method for method in methods if method.name in found]
        texts = {method: list(scored.texts.values()) for method, scored in found.items()}
        said += [
            f"{other.title} wrote exactly the texts of {one.title} on {name}: what differs between them changed no word."
            for one, other in combinations([base, *others], 2)
            if texts[one.name] == texts[other.name]
        ]
        said += warnings_about({one.title: texts[one.name] for one in (base, *others)}, f" on {name}")
        for method in others:
            if (more := _more_mentions(found[method.name], found[base.name])) is not None:
                said.append(
                    f"{method.title} mentions {more:.1f} times as many objects as the base on {name}: repeating what is "
                    "true lowers CHAIR_I, so read its distinct CHAIR_I."
                )
            share = broken[name][method.name]
            if share - broken[name][base.name] > BROKEN:
                said.append(
                    f"{method.title} breaks its sentences: {share:.0%} of its texts on {name} contain a word that the "
                    f"model itself gives a probability below 1 in {1 / IMPROBABLE:,.0f}; object metrics do not show this."
                )
    return said


def _more_mentions(run: Scored, base: Scored) -> float | None:
    own, its = (one.summary.metrics.get("mentions") for one in (run, base))
    if own is None or its is None or own.value is None or not its.value:
        return None
    return own.value / its.value if own.value > WORDY * its.value else None
