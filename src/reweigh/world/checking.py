"""How good the embedded model is: recall, F1, CHAIR, repeats, typical errors, yes/no accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reweigh.bench.chair.metrics import count_caption, figures
from reweigh.world.grammar import questions
from reweigh.world.kinds import KINDS
from reweigh.world.scenes import Scene
from reweigh.world.speaking import descriptions, presence
from reweigh.world.vocabulary import mentions

SHOWN = ("chair_s", "chair_i", "chair_i_distinct", "recall", "f1", "mentions", "length")


def caption_figures(scenes: Sequence[Scene], texts: Sequence[str]) -> dict[str, float]:
    """CHAIR over a corpus, repeats in a description, and the share of errors that such a scene leads one to expect."""
    named = [[m[3] for m in mentions(text)] for text in texts]
    rows = [
        count_caption(names, scene.objects, words=len(text.split()))
        for scene, names, text in zip(scenes, named, texts, strict=True)
    ]
    sums = {key: np.array(sum(row[key] for row in rows), float) for key in rows[0]}
    wrong = [(s, n) for s, names in zip(scenes, named, strict=True) for n in set(names) - s.objects]
    typical = sum(name in KINDS[scene.kind].expected for scene, name in wrong)
    found = {key: float(value) for key, value in figures(sums).items() if key in SHOWN}
    return {
        "n": len(texts),
        **{key: found[key] for key in SHOWN},
        "repeats": float(sums["mentions"] - sums["objects"]) / len(texts),
        "typical_share": 100 * typical / max(len(wrong), 1),
    }


def check(model: Any, processor: Any, scenes: Sequence[Scene]) -> dict[str, float]:
    """Figures of a model on scenes: descriptions, and four questions about each."""
    found = caption_figures(scenes, descriptions(model, processor, scenes))
    asked = [(s, name, there) for s in scenes for name, there in questions(s, 4)]
    replies = presence(model, processor, [(s, name) for s, name, _ in asked])
    right = [said == there for said, (_, _, there) in zip(replies, asked, strict=True)]
    found["yes_no_accuracy"] = 100 * sum(right) / len(right)
    found["yes_share"] = 100 * sum(said is True for said in replies) / len(replies)
    return found
