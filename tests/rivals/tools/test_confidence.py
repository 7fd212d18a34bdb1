"""Internal confidence: probabilities against a twin, a model's own hidden states, and words of a text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from checkpoints import FAMILIES, picture
from reweigh.errors import InputError
from reweigh.method.grids import Patch
from reweigh.method.lens import Lens
from reweigh.rivals.tools.confidence import (
    Confidence,
    check_confidence,
    confidence,
    read_confidence,
    top_probabilities,
    word_pieces,
)


def twin(logits, top):
    """One row: the largest ``top`` numbers, and whatever ties with the last of them, as shares."""
    row = np.asarray(logits, dtype=np.float64)
    least = -np.inf if top is None else np.sort(row)[::-1][min(top, len(row)) - 1]
    weights = np.where(row >= least, np.exp(row - row.max()), 0.0)
    return weights / weights.sum()


@settings(max_examples=60)
@given(st.lists(st.integers(-4, 4), min_size=3, max_size=30), st.sampled_from([1, 2, 5, 50, None]))
def test_probabilities_are_the_written_out_ones_with_ties(numbers, top):
    found = top_probabilities(torch.tensor([numbers, numbers[::-1]], dtype=torch.float32), top)
    np.testing.assert_allclose(found[0].numpy(), twin(numbers, top), atol=1e-6)
    np.testing.assert_allclose(found[1].numpy(), twin(numbers[::-1], top), atol=1e-6)


def test_a_token_beyond_the_largest_fifty_has_no_probability():
    logits = -torch.arange(100.0)[None] / 100
    found = top_probabilities(logits)[0]
    assert (found[:50] > 0).all()
    assert (found[50:] == 0).all()


def made(chunk=3):
    torch.manual_seed(2)
    norm, head = nn.RMSNorm(4), nn.Linear(4, 60, bias=False)
    nn.init.normal_(norm.weight)
    states = [torch.randn(7, 4) * 3 for _ in range(3)]
    return norm, head, states, Lens(norm, head, chunk=chunk)


@pytest.mark.parametrize("top", [50, None, 1])
def test_only_the_last_index_is_normed(top):
    norm, head, states, lens = made()
    tokens = [5, 41, 5, 0]
    found = read_confidence(lens, states, tokens, top=top)
    assert found.shape == (4, 3, 7)
    for index, stream in enumerate(states):
        for place, state in enumerate(stream):
            read = head(norm(state) if index == 2 else state).detach().numpy()
            np.testing.assert_allclose(found[:, index, place].numpy(), twin(read, top)[tokens], atol=1e-6)
    whole = read_confidence(made(chunk=288)[3], states, tokens, top=top)
    torch.testing.assert_close(found, whole)


def test_words_take_the_largest_of_their_tokens():
    values = torch.rand(3, 4, 6, generator=torch.Generator().manual_seed(1))
    patches = tuple(Patch(0, 0, place // 3, place % 3, 2, 3) for place in range(6))
    found = Confidence((7, 8, 9), values, tuple(range(6)), patches)
    assert found.of([7, 9]) == pytest.approx(float(values[[0, 2]].numpy().max()))
    wanted = values[[0, 2]].numpy().max(axis=0).max(axis=0).reshape(2, 3)
    np.testing.assert_array_equal(found.grid([7, 9]).numpy(), wanted)
    assert found.localise((30, 20), [7, 9]).shape == (20, 30)
    np.testing.assert_allclose(found.localise((3, 2), [7, 9]).numpy(), wanted)
    with pytest.raises(InputError, match="among"):
        found.of([10])
    with pytest.raises(InputError, match="grid"):
        Confidence((7,), values[:1], tuple(range(6)), (None,) * 6).grid()


@pytest.mark.parametrize("family", FAMILIES)
def test_confidence_reads_the_models_own_hidden_states(family, loaded, batch):
    model, _ = loaded(family)
    inputs = batch(family)
    tokens = [3, 20, 33]
    found = confidence(model, inputs, tokens)
    again = confidence(model, batch(family, rows=(1,)), tokens)
    if family != "instructblip":  # its Q-Former reads the padding of a batch
        torch.testing.assert_close(found[1].values, again[0].values, atol=1e-4, rtol=1e-3)
    output = model(**batch(family, rows=(1,)), output_hidden_states=True)
    inner = getattr(output, "language_model_outputs", output)
    head = model.get_output_embeddings()
    plain = family in ("instructblip", "llava_next")
    for index, states in enumerate(inner.hidden_states):
        log = head(states[0, list(again[0].positions)]).float()
        if not plain:
            log = log.masked_fill(log < log.topk(50).values[:, -1:], float("-inf"))
        torch.testing.assert_close(
            again[0].values[:, index], log.softmax(-1)[:, tokens].T, atol=1e-4, rtol=1e-3
        )


def test_confidence_of_a_text_and_its_refusals(loaded, batch):
    model, processor = loaded("llava")
    text = "The image, in detail."
    assert [text[start:end] for start, end, _ in word_pieces(processor, text)] == [
        "The",
        "image",
        "in",
        "detail",
    ]
    found = check_confidence(model, processor, picture(1), text)
    word = found.words[1]
    assert word.confidence == found.confidence.of(word.tokens)
    assert found.to_json()["words"][1]["confidence"] == word.confidence
    with pytest.raises(InputError, match="word"):
        check_confidence(model, processor, picture(1), "...")
    with pytest.raises(InputError, match="read"):
        confidence(model, batch("llava"), [10**6])
    ids = torch.tensor([[5, 6, 7]])
    with pytest.raises(InputError, match="no image"):
        confidence(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, [3])
