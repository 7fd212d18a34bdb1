"""The result file of the published CHAIR scorers, so that tools made for it can read ours.

Keeps their layout, their fractions and their indices of hallucinated tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reweigh.benchmarks.base import Response
from reweigh.benchmarks.chair.benchmark import CHAIR


def published_layout(benchmark: CHAIR, responses: Sequence[Response]) -> dict[str, Any]:
    """Give ``sentences`` and ``overall_metrics``; a figure whose denominator is zero is None."""
    sentences = [_sentence(benchmark, response) for response in responses]
    mentions = sum(len(row["mscoco_generated_words"]) for row in sentences)
    hallucinated = sum(len(row["mscoco_hallucinated_words"]) for row in sentences)
    recovered = sum(
        len(set(row["mscoco_generated_words"]) & set(row["mscoco_gt_words"])) for row in sentences
    )
    return {
        "sentences": sentences,
        "overall_metrics": {
            "CHAIRs": _share(sum(row["metrics"]["CHAIRs"] for row in sentences), len(sentences)),
            "CHAIRi": _share(hallucinated, mentions),
            "Recall": _share(recovered, sum(len(row["mscoco_gt_words"]) for row in sentences)),
            "Len": _share(0.01 * sum(len(row["words"]) for row in sentences), len(sentences)),
        },
    }


def _sentence(benchmark: CHAIR, response: Response) -> dict[str, Any]:
    reading = benchmark.finder.read(response.text)
    reference = benchmark.truth.objects(int(response.id))
    generated = [mention.category for mention in reading.mentions]
    wrong = [
        (mention, index)
        for mention, index in zip(reading.mentions, reading.indices, strict=True)
        if mention.category not in reference
    ]
    return {
        "image_id": response.id,
        "caption": response.text,
        "mscoco_hallucinated_words": [[mention.word, mention.category] for mention, _ in wrong],
        "mscoco_gt_words": sorted(reference),
        "mscoco_generated_words": generated,
        "hallucination_idxs": [index for _, index in wrong],
        "words": list(reading.words),
        "metrics": {
            "CHAIRs": int(bool(wrong)),
            "CHAIRi": _share(len(wrong), len(generated)) or 0.0,
            "Recall": _share(len(set(generated) & reference), len(reference)) or 0.0,
            "Len": 0.0,
        },
    }


def _share(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None
