"""The control that pushes yes or no, against the rule in plain Python and on the embedded model."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reweigh
from checkpoints import picture
from reweigh.errors import InputError
from reweigh.rivals.plain import answer_tokens, push

TOKENS = {"yes": [1, 3], "no": [2]}


def twin(row, answer, mass, gap):
    """The token that is written, by hand."""
    shares = [math.exp(one) for one in row]
    total = sum(shares)
    yes, no = (sum(shares[token] for token in TOKENS[word]) / total for word in ("yes", "no"))
    if yes + no > mass and abs(yes - no) < gap:
        return max(TOKENS[answer], key=lambda token: row[token])
    return max(range(len(row)), key=lambda token: row[token])


@given(
    rows=st.lists(
        st.lists(st.floats(-5, 5, width=32), min_size=5, max_size=5, unique=True), min_size=1, max_size=4
    ),
    answer=st.sampled_from(["yes", "no"]),
)
def test_the_chosen_word_is_written_where_the_model_hesitates(rows, answer):
    logits = torch.tensor(rows)
    pushed = push(logits, TOKENS, answer, 0.2, 0.5)
    assert pushed.argmax(dim=-1).tolist() == [twin(row, answer, 0.2, 0.5) for row in rows]


def test_rows_without_hesitation_keep_their_logits():
    logits = torch.tensor([[0.0, 9.0, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0, 0.0], [0.0, 5.0, 5.0, 0.0, 0.0]])
    pushed = push(logits, TOKENS, "no", 0.2, 0.5)
    assert torch.equal(pushed[:2], logits[:2])
    assert pushed[2].argmax() == 2
    assert pushed[2].isneginf().sum() == 4


def test_both_signs_on_the_embedded_model(embedded_session):
    model, processor = embedded_session
    assert {processor.tokenizer.decode([one]).strip() for one in answer_tokens(processor, "yes")} == {"Yes"}
    question = "Is there a dog in the image?"

    def said(**options):
        session = reweigh.decoder("push", model, processor, mass=0.0, gap=1.0, **options)
        return session.describe(picture(1), question, max_new_tokens=1)

    assert (said(answer="yes").strip(), said(answer="no").strip()) == ("Yes", "No")
    base = reweigh.decoder("base", model, processor).describe(picture(1), question, max_new_tokens=4)
    null = reweigh.decoder("push", model, processor, gap=0.0)
    assert null.describe(picture(1), question, max_new_tokens=4) == base


@pytest.fixture(scope="module")
def embedded_session():
    from reweigh.families.load import load
    from reweigh.world import path

    return load(path(), device="cpu")


def test_refusals(embedded_session, monkeypatch):
    model, processor = embedded_session
    monkeypatch.setattr(model, "name_or_path", "")  # no processor can be found beside it
    with pytest.raises(InputError, match="answer"):
        reweigh.decoder("push", model, processor, answer="maybe")
    with pytest.raises(InputError, match="processor"):
        reweigh.decoder("push", model)
