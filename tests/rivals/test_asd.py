"""ASD equals two passes steered by hand, in prefill as at every step; null settings, batches, threads, release."""

from __future__ import annotations

import functools
import threading

import numpy as np
import pytest
import torch
from llama_by_hand import embedded, forward
from random_vectors import random_vectors

import generating
import reweigh
from checkpoints import BLOCKS, picture
from reweigh.errors import InputError, MismatchError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.identity import identify
from reweigh.families.prompts import build_inputs
from sameness import assert_same

STEPS = 4
run = functools.partial(generating.run, steps=STEPS)


@pytest.fixture(scope="module")
def vectors(loaded):
    """``vectors(family)``: random vectors of a family's checkpoint."""

    def make(family):
        model, processor = loaded(family)
        width = model.get_output_embeddings().weight.shape[1]
        identity = identify(find_anatomy(model), processor).to_json()
        return random_vectors(BLOCKS, width, made_with={"identity": identity})

    return make


def test_whole_answers_equal_two_passes_steered_by_hand(loaded, batch, vectors):
    model, processor = loaded("llava")
    inputs, lam, alpha = batch("llava", rows=(0,)), 0.6, 0.7
    own = vectors("llava")
    options = {"vectors": own, "lam": lam, "alpha": alpha}
    with reweigh.decoder("asd", model, processor, **options):
        found = run(model, inputs)
    length = inputs["input_ids"].shape[1]
    states = embedded(model, inputs, found.sequences[:, length:-1]).detach()

    def steered(sign):
        def after(layer, states):
            return states + sign * lam * torch.tensor(own.vectors[layer])

        return forward(model, states, after=after)

    toward, away = steered(1), steered(-1)
    for step, logits in enumerate(found.logits):
        place = length - 1 + step
        wanted = (1 + alpha) * toward[:, place].numpy() - alpha * away[:, place].numpy()
        np.testing.assert_allclose(logits.numpy(), wanted, atol=2e-3, rtol=1e-3)
    assert not torch.allclose(toward, away, atol=1e-2)  # the slip of a published re-write: two equal passes


def test_text_rows_and_other_threads_are_never_steered(loaded, vectors):
    model, processor = loaded("llava")
    inputs = build_inputs(model, processor, [picture(1), None], ["What is it?", "Tell me a story."])
    base, found = run(model, inputs), {}
    with reweigh.decoder("asd", model, processor, vectors=vectors("llava"), lam=0.5):
        ours = run(model, inputs)
        other = threading.Thread(target=lambda: found.update(other=run(model, inputs)))
        other.start()
        other.join()
    assert not torch.equal(base.logits[0][0], ours.logits[0][0])
    assert all(torch.equal(a[1], b[1]) for a, b in zip(base.logits, ours.logits, strict=True))
    assert_same(base, found["other"])


def test_what_is_open_in_the_description_is_recorded(loaded, vectors):
    model, processor = loaded("llava")
    own = vectors("llava")
    record = reweigh.decoder("asd", model, processor, vectors=own, lam=0.2).record()
    assert record["options"] == {
        "lam": 0.2,
        "alpha": 1.0,
        "positions": "all",
        "layers": list(range(BLOCKS)),
        "vectors_sha256": own.fingerprint,
    }


def test_refusals(loaded, vectors, tmp_path):
    model, processor = loaded("llava")
    with pytest.raises(InputError, match="vectors"):
        reweigh.decoder("asd", model, processor)
    theirs = vectors("gemma3").save_pretrained(tmp_path)
    with pytest.raises(MismatchError, match="made with"):
        reweigh.decoder("asd", model, processor, vectors=theirs)
    reweigh.decoder("asd", model, processor, vectors=theirs, force=True)
