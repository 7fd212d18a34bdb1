"""Families beyond the six are edited alike with a cache and without, at every step."""

from __future__ import annotations

import pytest
import torch

import reweigh
import twin
from checkpoints.more import MORE, more
from reweigh.families.anatomy import find_anatomy

pytestmark = pytest.mark.numerics

STEPS = 3
FAST = ("blip-2", "idefics3", "qwen3_vl", "lfm2_vl")  # Q-Former, tiles, DeepStack, convolutional blocks


def marked(family):
    return pytest.param(family, marks=[] if family in FAST else [pytest.mark.slow])


@pytest.mark.parametrize("family", [marked(family) for family in MORE])
def test_generation_equals_plain_passes_over_the_growing_text(family):
    model, inputs = more(family)
    vocab = find_anatomy(model).vocab_size
    options = {
        "max_new_tokens": STEPS,
        "min_new_tokens": STEPS,
        "do_sample": False,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    options |= {"return_dict_in_generate": True, "output_logits": True}
    rw = reweigh.attach(model, table=twin.table(vocab, layer=1), beta=4.0)
    [seen] = reweigh.measure(model, inputs, layers=[1])
    strength = twin.strengths(rw.table, seen.at(1).double().numpy(), vocab)
    with torch.no_grad():
        base = model.generate(**inputs, **options)
        with rw:
            output = model.generate(**inputs, **options)
        assert not torch.equal(base.logits[0], output.logits[0])
        for step, logits in enumerate(output.logits):
            raw = model(**inputs).logits[0, -1]
            expected = torch.from_numpy(twin.edited(raw.numpy(), strength, 4.0)).float()
            torch.testing.assert_close(logits[0], expected, atol=2e-3, rtol=0)
            if family == "paligemma":  # a plain pass would attend to the answer as it does to the prompt
                break
            inputs = twin.extended(inputs, int(output.sequences[0, step - STEPS]))
