"""Given evidence decodes like measured evidence without reading a state; evidence that does not fit is refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY
from reweigh.engines.reader import Reader
from reweigh.errors import InputError, NumericsError

pytestmark = pytest.mark.numerics

BETA = 4.0


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


@pytest.fixture
def unread(monkeypatch):
    """Call it, and from then on nothing may be read through the lens."""

    def forbid():
        def refuse(*_):
            raise AssertionError("a state was read")

        monkeypatch.setattr(Reader, "read", refuse)

    return forbid


def attach(case, **options):
    return reweigh.attach(case.model, case.processor, table=twin.table(VOCABULARY), beta=BETA, **options)


def logits(case, inputs, **options):
    options = {"return_dict_in_generate": True, "output_logits": True, "max_new_tokens": 6, **options}
    with torch.no_grad():
        return torch.stack(case.model.generate(**inputs, do_sample=False, **options).logits)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("beams", [1, 2])
def test_given_evidence_decodes_like_measured_evidence(case, unread, beams):
    inputs = case.inputs()
    attached = attach(case)
    every = reweigh.measure(case.model, inputs, layers=[attached.layer])
    with attached:
        online = logits(case, inputs, num_beams=beams)
    unread()
    with attached.using(evidence=every):
        given = logits(case, inputs, num_beams=beams)
    # a search for beams measures on a larger batch, which may round differently and change a rank
    torch.testing.assert_close(given, online, rtol=0, atol=0 if beams == 1 else 0.1)
    with attached, pytest.raises(AssertionError, match="state"):
        logits(case, inputs)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_of_another_picture_is_taken_as_given(case):
    one, other = case.inputs(), case.inputs()
    other["pixel_values"] = other["pixel_values"].flip(-1) * -0.7
    attached = attach(case)
    with attached:
        own = logits(case, one)
    wrong = reweigh.measure(case.model, other, layers=[attached.layer])
    with attached.using(evidence=wrong):
        assert not torch.equal(logits(case, one), own)
    with attached:
        assert torch.equal(logits(case, one), own)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_that_does_not_fit_is_refused(case):
    inputs = case.inputs()
    attached = attach(case)
    tokens = attached.table.tokens.tolist()
    with attached.using(evidence=[]), pytest.raises(InputError, match="0 rows"):
        logits(case, inputs)
    for tokens_of, layer, words in ((tokens[:-1], attached.layer, "tokens"), (None, 0, "layer 2")):
        given = reweigh.measure(case.model, inputs, layers=[layer], tokens=tokens_of)
        with attached.using(evidence=given), pytest.raises(InputError, match=words):
            logits(case, inputs)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_of_another_head_or_that_is_not_a_number_is_refused(case):
    inputs = case.inputs()
    attached = attach(case)
    [found] = reweigh.measure(case.model, inputs, layers=[attached.layer])
    short = dataclasses.replace(found, values=found.values[:, :-1])
    with attached.using(evidence=[short]), pytest.raises(InputError, match="ranks 400"):
        logits(case, inputs)
    for values in (found.values * 1000, -found.values, found.values + 1):
        with (
            attached.using(evidence=[dataclasses.replace(found, values=values)]),
            pytest.raises(InputError, match="dmrr"),
        ):
            logits(case, inputs)
    broken = dataclasses.replace(found, values=found.values * float("nan"))
    with attached.using(evidence=[broken]), pytest.raises(NumericsError, match="finite"):
        logits(case, inputs)


@pytest.mark.parametrize("family", ["llava"])
def test_one_evidence_instead_of_a_list_is_refused(case):
    attached = attach(case)
    found = reweigh.measure(case.model, case.inputs(), layers=[attached.layer])
    with pytest.raises(InputError, match="list"), attached.using(evidence=found[0]):
        pass
