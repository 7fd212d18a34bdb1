"""CHAIR's counts: mentioned objects against reference objects, however the mentions were found.

A mention is hallucinated if its object is not in the image's reference set. Figures are micro: sums over
captions are divided at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from reweigh.lab.bootstrap import Array, harmonic, intervals, ratio
from reweigh.lab.estimate import Estimate
from reweigh.lab.tasks.types import Id, Item, MetricInfo, find_metric

NO_CAPTION = "there are no captions"
NO_MENTION = "no caption mentions an object"
NO_REFERENCE = "no image has a reference object"
NEITHER = f"{NO_MENTION}, or {NO_REFERENCE}"

METRICS = (
    MetricInfo("chair_s", "lower", title="CHAIR_S", headline=True, undefined=NO_CAPTION),
    MetricInfo("chair_i", "lower", title="CHAIR_I", headline=True, undefined=NO_MENTION),
    MetricInfo("chair_i_distinct", "lower", title="distinct CHAIR_I", headline=True, undefined=NO_MENTION),
    MetricInfo("recall", "higher", headline=True, undefined=NO_REFERENCE),
    MetricInfo("precision", "higher", undefined=NO_MENTION),
    MetricInfo("f1", "higher", title="F1", headline=True, undefined=NEITHER),
    MetricInfo("length", title="words", unit="", headline=True, undefined=NO_CAPTION),
    MetricInfo("mentions", unit="", headline=True, undefined=NO_CAPTION),
    MetricInfo("set_precision", "higher", title="precision, distinct objects", undefined=NO_MENTION),
    MetricInfo("set_f1", "higher", title="F1, distinct objects", undefined=NEITHER),
)
"""All metrics of CHAIR."""


def count_caption(objects: Sequence[str], reference: Collection[str], *, words: int) -> dict[str, float]:
    """Count one caption: its mentioned objects, with repeats, against those in the image, and its length in words.

    Examples:
        >>> counts = count_caption(["dog", "dog", "cat"], {"dog", "person"}, words=9)
        >>> counts["hallucinated_mentions"], counts["mentions"], counts["recovered"], counts["reference"]
        (1, 3, 1, 2)
    """
    truth = frozenset(reference)
    named = set(objects)
    hallucinated = sum(name not in truth for name in objects)
    return {
        "captions": 1,
        "hallucinated_captions": int(hallucinated > 0),
        "mentions": len(objects),
        "hallucinated_mentions": hallucinated,
        "objects": len(named),
        "hallucinated_objects": len(named - truth),
        "recovered": len(named & truth),
        "reference": len(truth),
        "words": words,
    }


def caption_item(
    identity: Id,
    text: str,
    mentions: Iterable[tuple[str, str, int, int]],
    reference: Collection[str],
) -> Item:
    """Count one caption and keep what a report shows.

    ``mentions`` have word, object, start and end in the text, in order; ``reference`` are the objects in the image.
    """
    found = list(mentions)
    named = [name for _, name, *_ in found]
    return Item(
        id=identity,
        image=identity,
        counts=count_caption(named, reference, words=len(text.split())),
        details={
            "mentions": [
                {
                    "word": word,
                    "object": name,
                    "start": start,
                    "end": end,
                    "hallucinated": name not in reference,
                }
                for word, name, start, end in found
            ],
            "reference": sorted(reference),
            "missed": sorted(set(reference) - set(named)),
        },
    )


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Compute all figures from summed counts; shares in percent, NaN where undefined.

    ``precision`` and ``f1`` are the paper's: 1 - CHAIR_I over mentions, with recall over distinct objects.
    ``set_precision`` and ``set_f1`` are those of other repositories: distinct objects on both sides.
    """
    chair_i = ratio(counts["hallucinated_mentions"], counts["mentions"])
    recall = ratio(counts["recovered"], counts["reference"])
    set_precision = ratio(counts["recovered"], counts["objects"])
    return {
        "chair_s": ratio(counts["hallucinated_captions"], counts["captions"]),
        "chair_i": chair_i,
        "recall": recall,
        "precision": 100.0 - chair_i,
        "f1": harmonic(100.0 - chair_i, recall),
        "length": ratio(counts["words"], counts["captions"], scale=1.0),
        "mentions": ratio(counts["mentions"], counts["captions"], scale=1.0),
        "chair_i_distinct": ratio(counts["hallucinated_objects"], counts["objects"]),
        "set_precision": set_precision,
        "set_f1": harmonic(set_precision, recall),
    }


def summarize_metrics(items: Sequence[Item]) -> dict[str, Estimate]:
    """Compute all figures of items made from :func:`count_caption`, with intervals."""
    return intervals(items, figures, undefined=lambda name: find_metric(METRICS, name).undefined)
