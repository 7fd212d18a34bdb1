"""What HALC asks about a picture: boxes of a word, and how well texts match. Adapters of models that transformers has.

Anything callable of the same shape will do in their place.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from reweigh.errors import InputError, MissingExtraError, UnsupportedError
from reweigh.rivals.halc.annotated import SUFFIX, AnnotatedBoxes
from reweigh.rivals.halc.fields import Box

if TYPE_CHECKING:
    from PIL.Image import Image

Detector = Callable[[Any, str], Sequence[Box]]
"""From a picture and a word to boxes, as fractions of the picture."""

Matcher = Callable[[Any, Sequence[str]], Sequence[float]]
"""From a picture and texts to one score each; larger is better."""


def kept_boxes(
    boxes: Sequence[Sequence[float]], scores: Sequence[float], *, area: float, overlap: float
) -> list[Box]:
    """Boxes of at least ``area`` of the picture, the best first, without those that overlap a better one by more."""
    found: list[Box] = []
    for place in sorted(range(len(boxes)), key=lambda place: -scores[place]):
        left, top, right, bottom = (min(1.0, max(0.0, float(edge))) for edge in boxes[place])
        box = (left, top, right, bottom)
        if _area(box) >= area and _area(box) > 0 and all(_overlap(box, other) <= overlap for other in found):
            found.append(box)
    return found


def _area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def _overlap(one: Box, other: Box) -> float:
    """Intersection over union."""
    inner = (max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3]))
    common = _area(inner)
    return common / (_area(one) + _area(other) - common)


class GroundingDino:
    """Boxes by ``GroundingDinoForObjectDetection``; the thresholds are those of HALC's program.

    Args:
        threshold: Least score of a box; the README says 0.4.
        text_threshold: Least score of a word.
        area: Least share of the picture.
        overlap: Largest intersection over union with a better box.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        *,
        threshold: float = 0.45,
        text_threshold: float = 0.4,
        area: float = 0.01,
        overlap: float = 0.6,
    ) -> None:
        self.model, self.processor = model.eval(), processor
        self.threshold, self.text_threshold = threshold, text_threshold
        self.area, self.overlap = area, overlap

    @torch.no_grad()
    def __call__(self, picture: Image, word: str) -> list[Box]:
        inputs = self.processor(images=picture, text=f"{word.lower()}.", return_tensors="pt").to(
            self.model.device
        )
        found = self.processor.post_process_grounded_object_detection(
            self.model(**inputs),
            inputs["input_ids"],
            threshold=self.threshold,
            text_threshold=self.text_threshold,
        )[0]
        boxes, scores = found["boxes"].tolist(), found["scores"].tolist()
        return kept_boxes(boxes, scores, area=self.area, overlap=self.overlap)


class Owlv2:
    """Boxes by ``Owlv2ForObjectDetection``, which sees the picture padded to a square."""

    def __init__(self, model: Any, processor: Any, *, threshold: float = 0.05) -> None:
        self.model, self.processor, self.threshold = model.eval(), processor, threshold

    @torch.no_grad()
    def __call__(self, picture: Image, word: str) -> list[Box]:
        inputs = self.processor(images=picture, text=[[word]], return_tensors="pt").to(self.model.device)
        wide, high = picture.size
        found = self.processor.post_process_grounded_object_detection(
            self.model(**inputs), threshold=self.threshold, target_sizes=[(high, wide)]
        )[0]
        size = torch.tensor([wide, high, wide, high])
        boxes = (found["boxes"].cpu() / size).tolist()
        return kept_boxes(boxes, found["scores"].tolist(), area=0.0, overlap=1.0)


class BlipMatcher:
    """Scores by ``BlipForImageTextRetrieval``: the probability that its head gives to a match."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model.eval(), processor

    @torch.no_grad()
    def __call__(self, picture: Image, texts: Sequence[str]) -> list[float]:
        longest = self.model.config.text_config.max_position_embeddings
        given = {"return_tensors": "pt", "padding": True, "truncation": True, "max_length": longest}
        inputs = self.processor(images=picture, text=list(texts), **given).to(self.model.device)
        shown = inputs["pixel_values"].expand(len(texts), -1, -1, -1)
        words = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        scores = self.model(pixel_values=shown, **words, use_itm_head=True).itm_score
        return [float(score) for score in scores.softmax(-1)[:, 1]]


DETECTORS = {
    "grounding-dino": ("GroundingDinoForObjectDetection", GroundingDino),
    "owlv2": ("Owlv2ForObjectDetection", Owlv2),
}


def load_detector(name: str) -> Detector:
    """A detector from a checkpoint's folder or Hub id, GroundingDINO or OWLv2, or from a file of annotated boxes."""
    import transformers

    if name.endswith(SUFFIX):
        return AnnotatedBoxes(name)

    with _told(name, "a detector"):
        kind = transformers.AutoConfig.from_pretrained(name).model_type
    if kind not in DETECTORS:
        raise UnsupportedError(
            f"{name} is a {kind}, not a detector that can be used",
            hint=f"one of {', '.join(DETECTORS)}, or a callable",
        )
    if (
        kind == "owlv2" and importlib.util.find_spec("scipy") is None
    ):  # its image processor would fail at first use
        raise MissingExtraError("OWLv2 as HALC's detector", "halc", "scipy")
    model, adapter = DETECTORS[kind]
    with _told(name, "a detector"):
        loaded = getattr(transformers, model).from_pretrained(name)
        made: Detector = adapter(loaded, transformers.AutoProcessor.from_pretrained(name))
    return made


def load_matcher(name: str) -> Matcher:
    """A matcher from a checkpoint's folder or Hub id: BLIP for image-text retrieval.

    A captioning checkpoint has no matching head; transformers would make one up, as the official program's matcher is.
    """
    import transformers

    with _told(name, "a matcher"):
        loaded, told = transformers.BlipForImageTextRetrieval.from_pretrained(name, output_loading_info=True)
    if missing := sorted(told["missing_keys"]):
        raise UnsupportedError(
            f"{name} lacks {len(missing)} weights of a matcher, e.g. {missing[0]}, which would be random",
            hint="use a checkpoint for image-text retrieval, e.g. Salesforce/blip-itm-base-coco",
        )
    with _told(name, "a matcher"):
        return BlipMatcher(loaded, transformers.AutoProcessor.from_pretrained(name))


@contextmanager
def _told(name: str, what: str) -> Iterator[None]:
    """Say which checkpoint cannot be read."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{name!r} cannot be loaded as {what} ({reason})",
            hint="give a checkpoint's folder or Hub id; offline, only what is already in the cache can be used",
        ) from error
