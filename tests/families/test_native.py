"""Ranks run over the language backbone's own vocabulary: rows added for images and padding take no part."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import reweigh
import twin
from checkpoints import picture
from reweigh.errors import InputError, MismatchError
from reweigh.families.catalogue import FAMILIES, native_rows

pytestmark = pytest.mark.numerics

ROWS = 300
PAIRS = [(f"{name}.png", picture(number, (60, 50))) for number, name in enumerate("abc")]


@pytest.mark.parametrize(
    ("family", "head", "native"),
    [
        ("llava", 32064, 32000),
        ("llava_next", 32064, 32000),
        ("llava_next", 64064, 64000),
        ("llava_next", 128320, 128256),
        ("instructblip", 32001, 32000),
        ("qwen2_5_vl", 152064, 152064),
        ("qwen2_5_vl", 151936, 151936),
        ("internvl", 92553, 92544),
        ("internvl", 151674, 151665),
        ("gemma3", 262208, 262144),
        ("llava", 400, 400),
        ("llava_next", 152064, 152064),
        ("smolvlm", 49280, 49280),
    ],
)
def test_the_native_rows_of_published_heads(family: str, head: int, native: int) -> None:
    assert native_rows(FAMILIES[family], head) == native


@pytest.fixture
def llava(checkpoint, monkeypatch):
    monkeypatch.setattr("reweigh.families.anatomy.native_rows", lambda family, rows: ROWS)
    return twin.case(checkpoint("llava"))


def test_evidence_equals_the_definition_over_native_rows(llava):
    inputs = llava.inputs([1])
    [found] = reweigh.measure(llava.model, inputs, layers=[1], locate=[ROWS - 1])
    assert found.values.shape == (1, ROWS)
    expected = twin.evidence(llava.model, inputs, 1, ROWS)[0]
    np.testing.assert_allclose(found.at(1), expected, rtol=1e-6)
    assert not np.allclose(expected, twin.evidence(llava.model, inputs, 1)[0][:ROWS])
    assert float(found.located.mean()) == pytest.approx(expected[ROWS - 1], rel=1e-6)
    with pytest.raises(InputError, match=str(ROWS)):
        reweigh.measure(llava.model, inputs, layers=[1], tokens=[ROWS])


def occurrences(calibration):
    """(image, token, count) of every candidate that was observed."""
    seen = calibration.observations
    return set(zip(seen.image.tolist(), seen.token.tolist(), seen.count.tolist(), strict=True))


def test_an_added_token_is_a_candidate_and_never_observed(llava, checkpoint, monkeypatch):
    options = {"layers": [1], "max_new_tokens": 6, "show": False, "rule": "count-1"}
    found = reweigh.calibrate(llava.model, llava.processor, PAIRS, **options)
    table = found.tables[1]
    assert table.rows == ROWS
    assert max(table.tokens) < ROWS
    monkeypatch.setattr("reweigh.families.anatomy.native_rows", lambda family, rows: rows)
    whole = occurrences(reweigh.calibrate(llava.model, llava.processor, PAIRS, **options))
    assert occurrences(found) == {one for one in whole if one[1] < ROWS} != whole
    with pytest.raises(MismatchError, match="rows ranked"):
        reweigh.attach(llava.model, llava.processor, table=table)


def test_generation_follows_the_twin(llava):
    made = twin.table(ROWS, layer=1, rows=ROWS)
    inputs = llava.inputs([1])
    expected, logits = twin.greedy(llava.model, inputs, made, 2.0, 5)
    with torch.no_grad(), reweigh.attach(llava.model, table=made, beta=2.0):
        output = llava.model.generate(
            **inputs, max_new_tokens=5, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
    assert output.sequences[0, -len(expected) :].tolist() == expected
    for seen, wanted in zip(output.logits, logits, strict=False):
        torch.testing.assert_close(seen[0].double(), torch.from_numpy(wanted), atol=2e-3, rtol=0)
