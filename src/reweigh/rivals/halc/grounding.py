"""HALC's detectors (which boxes show a word) and matchers (how well texts match a picture).

``GroundingDino`` and ``BlipMatcher`` adapt models of transformers; any other callable of the same signature will do.
``AnnotatedBoxes`` reads the boxes from a file. If the answers are judged by the same annotations, it is an oracle: the
bound of what any detector could do. The file has one JSON object per line, with the image's path relative to the file
and boxes as fractions of the picture:

    {"image": "dog.png", "objects": [{"words": ["dog", "puppy"], "box": [0.1, 0.2, 0.6, 0.9]}]}

``PictureGain`` asks how much likelier the picture makes a text. The model judges its own texts, so it is weaker than a
separate matcher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.files.artifacts import read_jsonl
from reweigh.images import pixels_hash, read_image
from reweigh.rivals.tools import (
    DESCRIBE,
    Anatomy,
    ArtifactError,
    InputError,
    UnsupportedError,
    beside,
    build_inputs,
    first_line,
    read_prompt,
    without_image,
    word_tokens,
)

if TYPE_CHECKING:
    from PIL.Image import Image


Box = tuple[float, float, float, float]
"""Left, top, right, bottom as fractions of the picture."""

BOX_SCORE, WORD_SCORE = 0.45, 0.4
"""Least scores of a detected box and word in HALC's program; its README says 0.4 for boxes."""

AREA, OVERLAP = 0.01, 0.6
"""Least share of the picture that a box has, and largest intersection over union with a better one."""

Detector = Callable[[Any, str], Sequence[Box]]
"""From a picture and a word to boxes, as fractions of the picture."""

Matcher = Callable[[Any, Sequence[str]], Sequence[float]]
"""From a picture and texts to one score each; larger is better."""


def singular(word: str) -> str:
    """Return a word in lower case without any final "s"."""
    return word.lower().rstrip("s")


def checked_box(given: Sequence[float]) -> Box:
    """Return a box whose edges are in order and inside the picture; refuse any other."""
    left, top, right, bottom = given if len(given) == 4 else (0.0,) * 4
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise InputError(
            f"{tuple(given)} is not a box", hint="left, top, right, bottom as fractions of the picture"
        )
    return left, top, right, bottom


def kept_boxes(boxes: Sequence[Sequence[float]], scores: Sequence[float]) -> list[Box]:
    """Return boxes of at least ``AREA``, best first, dropping those that overlap a better one by more than ``OVERLAP``."""
    found: list[Box] = []
    for place in sorted(range(len(boxes)), key=lambda place: -scores[place]):
        left, top, right, bottom = (min(1.0, max(0.0, float(edge))) for edge in boxes[place])
        box = (left, top, right, bottom)
        if _area(box) >= AREA and all(_overlap(box, other) <= OVERLAP for other in found):
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
    """Boxes by ``GroundingDinoForObjectDetection``."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model.eval(), processor

    @torch.no_grad()
    def __call__(self, picture: Image, word: str) -> list[Box]:
        given = self.processor(images=picture, text=f"{word.lower()}.", return_tensors="pt")
        inputs = given.to(self.model.device)
        found = self.processor.post_process_grounded_object_detection(
            self.model(**inputs), inputs["input_ids"], threshold=BOX_SCORE, text_threshold=WORD_SCORE
        )[0]
        return kept_boxes(found["boxes"].tolist(), found["scores"].tolist())


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


def load_detector(name: str) -> Detector:
    """Load a detector from a GroundingDINO checkpoint (folder or Hub id) or from a file of annotated boxes."""
    if name.endswith(SUFFIX):
        return AnnotatedBoxes(name)
    return GroundingDino(*_load(name, "grounding-dino", "GroundingDinoForObjectDetection"))


def load_matcher(name: str) -> Matcher:
    """Load a matcher from a BLIP checkpoint for image-text retrieval (folder or Hub id)."""
    return BlipMatcher(*_load(name, "blip", "BlipForImageTextRetrieval"))


def _load(name: str, model_type: str, kind: str) -> tuple[Any, Any]:
    """Load a model and its processor; refuse another kind of checkpoint.

    A captioning BLIP has no matching head: transformers would initialize one at random, as in the official program.
    """
    import transformers

    hint = f"pass the folder or Hub id of a {kind}; offline, only what is already in the cache can be used"
    try:
        found = transformers.AutoConfig.from_pretrained(name).model_type
        if found != model_type:
            raise UnsupportedError(f"{name} is a {found}, not a {model_type}", hint=hint)
        model, told = getattr(transformers, kind).from_pretrained(name, output_loading_info=True)
        if missing := sorted(told["missing_keys"]):
            raise UnsupportedError(
                f"{name} lacks {len(missing)} weights of a {kind}, e.g. {missing[0]}, which would be random",
                hint=hint,
            )
        return model, transformers.AutoProcessor.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise InputError(f"{name!r} cannot be loaded as a {kind} ({first_line(error)})", hint=hint) from error


SUFFIX = ".jsonl"
Named = list[tuple[str, Box]]


class AnnotatedBoxes:
    """Boxes of a word from the annotations of its picture, found by the picture's pixels.

    Mirror images are known, too: a comparison warms up on mirrored pictures.
    """

    is_oracle = True

    def __init__(self, path: str | Path) -> None:
        from PIL.ImageOps import mirror

        self.path = Path(path)
        self._known: dict[str, Named] = {}
        for number, row in enumerate(read_jsonl(self.path), 1):
            try:
                picture = read_image(self.path.parent / row["image"])
                found = [
                    (singular(word), checked_box([float(edge) for edge in one["box"]]))
                    for one in row["objects"]
                    for word in one["words"]
                ]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ArtifactError(
                    f"{self.path}, line {number}, does not describe a picture with its boxes ({error!r})",
                    hint='{"image": "dog.png", "objects": [{"words": ["dog"], "box": [0.1, 0.2, 0.6, 0.9]}]}',
                ) from error
            self._known[pixels_hash(picture)] = found
            self._known[pixels_hash(mirror(picture))] = [
                (word, (1 - right, top, 1 - left, bottom)) for word, (left, top, right, bottom) in found
            ]

    def __call__(self, picture: Image, word: str) -> list[Box]:
        found = self._known.get(pixels_hash(picture))
        if found is None:
            raise InputError(
                f"{self.path} has no annotations of a picture of {picture.width}x{picture.height} pixels that was shown",
                hint="annotate every picture that is described, or use a detector",
            )
        return [box for name, box in found if name == singular(word)]


OWN = "own"
"""The name of this matcher as an option."""


class PictureGain:
    """Scores of texts: the mean over a text's tokens of ln p(token | picture) - ln p(token | no picture)."""

    def __init__(self, anatomy: Anatomy, processor: Any, template: str | None = None) -> None:
        self.anatomy, self.processor, self.template = anatomy, processor, template

    def __call__(self, picture: Image, texts: Sequence[str]) -> list[float]:
        rows = [word_tokens(self.processor, text) if text else [] for text in texts]
        seen = build_inputs(self.anatomy.model, self.processor, [picture], [DESCRIBE], template=self.template)
        blind = without_image(self.anatomy, self.processor, seen)
        gains = self.likelihoods(seen, rows) - self.likelihoods(blind, rows)
        return [float(gain) for gain in gains]

    @torch.no_grad()
    def likelihoods(self, inputs: dict[str, Any], rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the mean log-probability of each answer's tokens after one prompt; 0 for an empty answer."""
        width, device = max(1, *map(len, rows)), inputs["input_ids"].device
        tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
        said = torch.tensor([[place < len(row) for place in range(width)] for row in rows], device=device)
        with beside(self.anatomy):
            branch, first = read_prompt(self.anatomy, inputs, 0)
            branch.repeat(len(rows))
            logits = [first.expand(len(rows), -1, -1)]
            if width > 1:
                logits.append(branch.step(tokens[:, :-1], width - 1))
        log_probs = torch.cat(logits, dim=1).float().log_softmax(-1)
        own: Tensor = log_probs.gather(-1, tokens[..., None])[..., 0]
        return (own * said).sum(dim=1) / said.sum(dim=1).clamp_min(1)
