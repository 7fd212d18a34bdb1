"""Adapters of a detector and a matcher on tiny random checkpoints: boxes as fractions, scores by text, refusals."""

from __future__ import annotations

import pytest
import torch
import transformers as hf

from checkpoints import judges, picture
from reweigh.errors import InputError, UnsupportedError
from reweigh.rivals.halc import grounding
from reweigh.rivals.halc.grounding import (
    BlipMatcher,
    GroundingDino,
    kept_boxes,
    load_detector,
    load_matcher,
)


def test_small_and_overlapping_boxes_are_left_out():
    large, shifted = (0.0, 0.0, 0.5, 0.5), (0.0, 0.0, 0.5, 0.45)
    boxes = [large, shifted, (0.9, 0.9, 0.95, 0.95), (0.6, 0.6, 1.2, 1.0)]
    found = kept_boxes(boxes, [0.5, 0.9, 0.8, 0.7])
    assert found == [shifted, (0.6, 0.6, 1.0, 1.0)]
    half = (0.0, 0.0, 0.5, 0.25)
    assert kept_boxes([large, half], [0.5, 0.9]) == [half, large]  # they overlap by a half


def is_inside(box):
    left, top, right, bottom = box
    return 0 <= left < right <= 1 and 0 <= top < bottom <= 1


def test_grounding_dino_gives_the_models_boxes_over_its_threshold(tmp_path, monkeypatch):
    found = load_detector(str(judges.grounding_dino(tmp_path)))
    assert isinstance(found, GroundingDino)
    assert (grounding.BOX_SCORE, grounding.WORD_SCORE) == (0.45, 0.4)
    assert (grounding.AREA, grounding.OVERLAP) == (0.01, 0.6)
    for name, value in {"BOX_SCORE": 0.0, "WORD_SCORE": 0.0, "AREA": 1e-9, "OVERLAP": 1.0}.items():
        monkeypatch.setattr(grounding, name, value)
    image = picture(1, (64, 40))
    boxes = found(image, "Dog")
    inputs = found.processor(images=image, text="dog.", return_tensors="pt")
    with torch.no_grad():
        centers = found.model(**inputs).pred_boxes[0]
    corners = torch.cat(
        [centers[:, :2] - centers[:, 2:] / 2, centers[:, :2] + centers[:, 2:] / 2], dim=1
    ).clamp(0, 1)
    assert all(is_inside(box) for box in boxes)
    assert all((corners - torch.tensor(box)).abs().amax(dim=1).min() < 1e-5 for box in boxes)
    monkeypatch.setattr(grounding, "BOX_SCORE", 1.1)
    assert found(image, "dog") == []


def test_blip_scores_each_text_as_it_does_alone(tmp_path):
    found = load_matcher(str(judges.blip(tmp_path)))
    assert isinstance(found, BlipMatcher)
    texts = ["a dog", "a cat on a long table", "a"]
    scores = found(picture(1), texts)
    assert all(0 <= score <= 1 for score in scores)
    assert len(set(scores)) == 3
    assert scores == pytest.approx([found(picture(1), [text])[0] for text in texts], abs=1e-5)
    assert scores != pytest.approx(found(picture(9), texts), abs=1e-6)
    assert len(found(picture(1), ["a dog " * 200])) == 1  # a text beyond the model's positions is cut


def test_checkpoints_of_another_kind_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="random"):
        load_matcher(str(judges.blip(tmp_path / "caption", captioner=True)))
    hf.BertConfig().save_pretrained(tmp_path / "bert")
    for load in (load_detector, load_matcher):
        with pytest.raises(UnsupportedError, match="bert"):
            load(str(tmp_path / "bert"))
        with pytest.raises(InputError, match="no-such-folder"):
            load(str(tmp_path / "no-such-folder"))
