"""Broken texts: how often a method writes what the model itself finds next to impossible at that place.

Figures of objects do not see a sentence that falls apart. One forward pass over a finished text gives the probability
that the model, unedited, gave to each of its tokens; a text with a token far below chance is broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reweigh.engines.transformers.inputs import followed_by
from reweigh.families.prompts import build_inputs
from reweigh.images import read_image
from reweigh.progress import bar
from reweigh.runs.record import find_image

if TYPE_CHECKING:
    from reweigh.runs.task import Runs

IMPROBABLE = 1e-3
"""Probability below which a token breaks its text."""
LOOKED_AT = 50
"""Texts of each method that are read again."""
WORDS = 4
"""Shorter answers are no sentences."""


def broken_shares(
    model: Any, processor: Any, runs: Runs, texts: Mapping[str, Sequence[str]], *, show: bool | None = None
) -> dict[str, float]:
    """For each method the share of its first texts that hold an improbable token; sentences only."""
    records = runs.task.records[:LOOKED_AT]
    due = {name: [text.strip() for text in found[: len(records)]] for name, found in texts.items()}
    count = {name: sum(len(text.split()) >= WORDS for text in found) for name, found in due.items()}
    broken = dict.fromkeys(due, 0)
    with bar("reading texts again", total=sum(count.values()), unit="text", show=show) as progress:
        for number, record in enumerate(records):
            picture = read_image(find_image(Path(runs.task.images), record.image))
            inputs = build_inputs(model, processor, [picture], [record.prompt], template=runs.template)
            for name, found in due.items():
                if len(found[number].split()) >= WORDS:
                    broken[name] += least_likely(model, processor, inputs, found[number]) < IMPROBABLE
                    progress.update(1)
    return {name: broken[name] / count[name] for name in due if count[name]}


def least_likely(model: Any, processor: Any, inputs: Mapping[str, Any], text: str) -> float:
    """The lowest probability of a token of a text behind a prompt; the first, which begins it, is left out."""
    tokenizer = getattr(processor, "tokenizer", processor)
    ids = tokenizer(f" {text}", add_special_tokens=False, return_tensors="pt")["input_ids"]
    ids = ids.to(inputs["input_ids"].device)
    if ids.shape[1] < 2:
        return 1.0
    with torch.no_grad():
        logits = model(**followed_by(inputs, ids)).logits[0, -ids.shape[1] : -1].float()
    own = logits.log_softmax(dim=-1).gather(1, ids[0, 1:, None])
    return float(own.min().exp())
