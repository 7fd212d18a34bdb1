"""M3ID equals its formula, and its branch has no trace of the image."""

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


def test_m3id_weight_grows_and_is_capped(loaded, batch, answer):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    decoder = reweigh.decoder("m3id", model, processor).decoder
    weights = decoder.weights(torch.tensor([0, 50, 200, 9000])).tolist()
    assert weights == pytest.approx([0, 1.718281828, 10, 10])
    with reweigh.decoder("m3id", model, processor, decay=0.4):
        found = run(model, inputs, do_sample=False)
    text = inputs["input_ids"][:, inputs["input_ids"][0] != model.config.image_token_id]
    for step, logits in enumerate(found.logits):
        tokens = found.sequences[:, inputs["input_ids"].shape[1] :][:, :step]
        a = answer(model, inputs, tokens).log_softmax(-1)
        with torch.no_grad():
            u = model(input_ids=torch.cat([text, tokens], 1)).logits[:, -1].log_softmax(-1)
        weight = torch.tensor(0.4 * step).expm1()
        torch.testing.assert_close(logits, a + weight * (a - u), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_branch_without_image_has_no_trace_of_it(family, loaded, batch):
    model, processor = loaded(family)
    attached = reweigh.decoder("m3id", model, processor)
    make, kept = attached.decoder.branch_inputs, []
    attached.decoder.branch_inputs = lambda forward: kept.append(make(forward)) or dict(kept[-1])
    with attached:
        model.generate(**batch(family), max_new_tokens=1, do_sample=False)
    ids = kept[0]["input_ids"][kept[0]["attention_mask"].bool()]
    gone = {
        "<image>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<img>",
        "</img>",
        "<IMG_CONTEXT>",
    }
    gone |= {"<start_of_image>", "<end_of_image>", "<image_soft_token>"}
    assert not gone & set(processor.tokenizer.convert_ids_to_tokens(ids.tolist()))
    assert "describe this image" in processor.tokenizer.decode(ids)
