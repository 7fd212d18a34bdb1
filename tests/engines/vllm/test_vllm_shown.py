"""The evidence of each token that a request wrote, against the definition."""

from __future__ import annotations

from types import SimpleNamespace as Plain

import numpy as np
import pytest

from reweigh.engines.vllm.shown import Shown
from reweigh.tables.table import ReferenceTable

WORDS = {1: " a", 2: " dog", 3: " cat", 4: " mat"}
TABLE = ReferenceTable(2, 0.5, np.array([2, 3]), np.array([0.4, 0.3]), np.array([9, 9]), {})
TOLD = {"edited": True, "beta": 1.5, "layer": 2}


class Text:
    """As vLLM's detokenizer: the text so far."""

    output_text = ""


def shown(*, is_delta=False):
    tokenizer = Plain(decode=lambda ids, skip_special_tokens: WORDS[ids[0]])
    state = Plain(detokenizer=Text())
    return Shown(TABLE, tokenizer, state, is_delta=is_delta), state.detokenizer


def step(one, text, tokens, winners, told=TOLD):
    one.hear(dict(told), tokens, winners)
    text.output_text += "".join(WORDS[token] for token in tokens)


def test_each_token_has_its_evidence_reference_strength_and_what_it_replaced():
    one, text = shown()
    step(one, text, [1], [[1, 1]], {**TOLD, "dmrr": [0.1, 0.35]})
    step(one, text, [2, 3], [[3, 2], [3, 3], [4, 4]])  # a third row was drafted and not accepted
    told = one.write(TOLD, 3)
    assert (told["decoder"], told["b0"], told["beta"], told["changed"]) == ("reweigh", 0.5, 1.5, 1)
    first, second, third = told["tokens"]
    assert first == {
        "step": 0, "token": 1, "text": " a", "start": 0, "end": 2, "dmrr": None, "b": None, "s": None, "replaced": None
    }  # fmt: skip
    assert (second["dmrr"], second["b"]) == (0.1, 0.4)
    assert second["s"] == pytest.approx((0.4 - 0.1) / 0.5)
    assert second["replaced"] == {"token": 3, "text": " cat"}
    assert third["s"] == 0.0  # more evidence than its reference
    assert [(one["start"], one["end"]) for one in told["tokens"]] == [(0, 2), (2, 6), (6, 10)]


def test_a_stream_shows_each_token_once_and_a_whole_answer_all_of_them():
    for is_delta, expected in ((True, [[1], [2]]), (False, [[1], [1, 2]])):
        one, text = shown(is_delta=is_delta)
        seen = []
        for count, token in enumerate((1, 2), start=1):
            step(one, text, [token], [[token, token]])
            told = one.write(TOLD, 1 if is_delta else count)
            seen.append([known["token"] for known in told["tokens"]])
        assert seen == expected


def test_tokens_after_a_stop_are_not_shown():
    one, text = shown()
    step(one, text, [1, 2, 3], [[1, 1], [2, 2], [3, 3]])
    assert [known["token"] for known in one.write(TOLD, 2)["tokens"]] == [1, 2]
