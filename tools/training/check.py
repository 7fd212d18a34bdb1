"""How good the embedded model is: recall, F1, CHAIR, repeats, typical errors, yes/no accuracy, and its lens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.tasks.chair.metrics import count_caption, figures
from reweigh.world.drawings import CATALOGUE
from reweigh.world.kinds import KINDS
from reweigh.world.scenes import Scene
from reweigh.world.vocabulary import mentions
from tools.training.grammar import questions
from tools.training.speaking import BATCH, descriptions, parts, presence, prompted

SHOWN = ("chair_s", "chair_i", "chair_i_distinct", "recall", "f1", "mentions", "length")


def caption_figures(scenes: Sequence[Scene], texts: Sequence[str]) -> dict[str, float]:
    """CHAIR over a corpus, repeats in a description, and the share of errors that are typical for the scene."""
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


def lens_figures(model: Any, processor: Any, scenes: Sequence[Scene], layer: int) -> dict[str, float]:
    """How well DMRR at a layer tells present from absent objects, by the first piece of their names: AUROC.

    ``lens_auroc_typical`` counts only absent objects that are typical for the scene.
    """
    from reweigh.measuring import measure

    pieces = {n: processor.tokenizer(f" {n}", add_special_tokens=False).input_ids[0] for n in CATALOGUE}
    rows = []
    for part in parts(scenes, BATCH):
        inputs = prompted(processor, [s.image() for s in part])
        rows += measure(model, inputs, layers=[layer], tokens=list(pieces.values()))
    seen = np.stack([row.at(layer).numpy() for row in rows if row is not None])
    there = np.array([[name in s.objects for name in CATALOGUE] for s in scenes])
    typical = np.array([[name in KINDS[s.kind].expected for name in CATALOGUE] for s in scenes])
    return {
        "lens_auroc": auroc(seen[there], seen[~there]),
        "lens_auroc_typical": auroc(seen[there], seen[~there & typical]),
    }


def auroc(higher: NDArray[Any], lower: NDArray[Any]) -> float:
    """Chance that a value of the first kind exceeds one of the second; equal values count half."""
    ordered = np.sort(lower)
    below = np.searchsorted(ordered, higher, "left")
    equal = np.searchsorted(ordered, higher, "right") - below
    return float((below + equal / 2).mean() / len(lower))
