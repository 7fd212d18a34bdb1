"""The model's own matcher equals a token-by-token twin on every family, whatever texts stand beside each other."""

from __future__ import annotations

import pytest
import torch

from checkpoints import FAMILIES, picture
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.rivals.halc.grounding import PictureGain
from reweigh.rivals.tools.inputs import without_image, word_tokens

TEXTS = ["a dog on a table", "a cat", ""]


def likelihood(model, inputs, ids, answer):
    total = 0.0
    for place, token in enumerate(ids):
        logits = answer(model, inputs, torch.tensor([ids[:place]], dtype=torch.int64))[0]
        total += float(logits.double().log_softmax(-1)[token])
    return total / max(1, len(ids))


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_what_the_picture_adds_to_each_text(family, loaded, answer):
    model, processor = loaded(family)
    anatomy = find_anatomy(model)
    match = PictureGain(anatomy, processor)
    scores = match(picture(1), TEXTS)
    seen = build_inputs(model, processor, [picture(1)], [DESCRIBE])
    blind = without_image(anatomy, processor, seen)
    for text, score in zip(TEXTS, scores, strict=True):
        ids = word_tokens(processor, text) if text else []
        wanted = likelihood(model, seen, ids, answer) - likelihood(model, blind, ids, answer)
        assert score == pytest.approx(wanted, abs=2e-4)
    assert scores[2] == 0
    assert abs(scores[0]) > 1e-3
    assert scores[:1] == pytest.approx(match(picture(1), TEXTS[:1]), abs=1e-4)
