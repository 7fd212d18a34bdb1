"""ICD puts its words before the question."""

from __future__ import annotations

import pytest
import torch

import reweigh
from checkpoints import FAMILIES

pytestmark = pytest.mark.numerics


def run(model, inputs, **options):
    torch.manual_seed(3)
    return model.generate(
        **inputs, max_new_tokens=4, return_dict_in_generate=True, output_logits=True, **options
    )


def test_icd_puts_the_words_before_the_question(loaded, batch):
    for family in FAMILIES:
        model, processor = loaded(family)
        attached = reweigh.decoder("icd", model, processor, disturbance="You know nothing.")
        make, kept = attached.decoder.branch_inputs, []
        attached.decoder.branch_inputs = lambda forward, make=make, kept=kept: (
            kept.append(make(forward)) or dict(kept[-1])
        )
        with attached:
            model.generate(**batch(family), max_new_tokens=1, do_sample=False)
        texts = processor.batch_decode(kept[0]["input_ids"])
        assert "You know nothing. Please describe this image in detail." in texts[0]
        assert "You know nothing. What is in the image?" in texts[1]
        if family == "instructblip":
            questions = processor.qformer_tokenizer.batch_decode(kept[0]["qformer_input_ids"])
            assert "You know nothing. Please describe" in questions[0]
