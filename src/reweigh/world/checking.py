"""How good the embedded model is: recall, F1, CHAIR, repeats, typical errors, yes/no accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reweigh.world.grammar import questions
from reweigh.world.kinds import KINDS
from reweigh.world.scenes import Scene
from reweigh.world.speaking import descriptions, presence
from reweigh.world.vocabulary import mentions


def caption_figures(scenes: Sequence[Scene], texts: Sequence[str]) -> dict[str, float]:
    """CHAIR and its companions over a corpus, in percent; mentions count as often as they occur."""
    said = made_up = bad_captions = repeats = words = 0
    found = truth = 0
    distinct = distinct_bad = typical = 0
    for scene, text in zip(scenes, texts, strict=True):
        names = [m[3] for m in mentions(text)]
        wrong = [n for n in names if n not in scene.objects]
        said, made_up, bad_captions = said + len(names), made_up + len(wrong), bad_captions + bool(wrong)
        repeats += len(names) - len(set(names))
        distinct, distinct_bad = distinct + len(set(names)), distinct_bad + len(set(wrong))
        typical += sum(n in KINDS[scene.kind].expected for n in set(wrong))
        found, truth = found + len(set(names) & scene.objects), truth + len(scene.objects)
        words += len(text.split())
    count = len(texts)
    precision, recall = 1 - made_up / max(said, 1), found / max(truth, 1)
    return {
        "n": count,
        "chair_s": 100 * bad_captions / count,
        "chair_i": 100 * made_up / max(said, 1),
        "chair_i_distinct": 100 * distinct_bad / max(distinct, 1),
        "recall": 100 * recall,
        "f1": 100 * 2 * precision * recall / max(precision + recall, 1e-9),
        "repeats": repeats / count,
        "mentions": said / count,
        "words": words / count,
        "typical_share": 100 * typical / max(distinct_bad, 1),
    }


def check(model: Any, processor: Any, scenes: Sequence[Scene]) -> dict[str, float]:
    """Figures of a model on scenes: descriptions, and four questions about each."""
    figures = caption_figures(scenes, descriptions(model, processor, scenes))
    asked = [(s, name, there) for s in scenes for name, there in questions(s, 4)]
    replies = presence(model, processor, [(s, name) for s, name, _ in asked])
    right = [said == there for said, (_, _, there) in zip(replies, asked, strict=True)]
    figures["yes_no_accuracy"] = 100 * sum(right) / len(right)
    figures["yes_share"] = 100 * sum(said is True for said in replies) / len(replies)
    return figures
