"""Other readouts calibrated and deployed like DMRR: numbers of the twin, records, and what may not be mixed."""

from __future__ import annotations

import numpy as np
import pytest

import reweigh
import twin
from checkpoints import picture
from reweigh.errors import MismatchError, UnknownNameError
from reweigh.method.matching import mean_edit
from reweigh.method.references import register

NAMES = ("prob", "logprob", "zscore", "zprob")


@pytest.fixture(scope="module")
def case(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.fixture(scope="module")
def calibrated(case, tmp_path_factory):
    """A calibration of each readout on the same few pictures."""
    pictures = [(f"{seed}", picture(seed, (70, 50))) for seed in range(8)]
    folder = tmp_path_factory.mktemp("calibrations")
    options = {"layers": [2], "max_new_tokens": 6, "rule": "count-2", "show": False}
    return {
        name: reweigh.calibrate(
            case.model, case.processor, pictures, **options, readout=name, out=folder / name
        )
        for name in ("dmrr", *NAMES)
    }


def twin_readout(name, logits):
    z = logits.double().numpy()
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    if name in ("prob", "logprob"):
        return p.mean(axis=0) if name == "prob" else np.log(np.maximum(p.mean(axis=0), 1e-8))
    values = z if name == "zscore" else p
    return ((values - values.mean(1, keepdims=True)) / values.std(1, keepdims=True)).mean(axis=0)


@pytest.mark.parametrize("name", NAMES)
def test_measure_reads_it(case, name):
    inputs = case.inputs()
    [found] = reweigh.measure(case.model, inputs, layers=[2], readout=name)
    assert found.readout == name
    [logits] = twin.lens(case.model, inputs, 2)
    np.testing.assert_allclose(found.at(2).numpy(), twin_readout(name, logits), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_calibration_records_its_readout_and_saves_it(calibrated, name, tmp_path):
    done, ranked = calibrated[name], calibrated["dmrr"]
    table = done.tables[2]
    assert table.readout == name
    assert np.array_equal(done.observations.token, ranked.observations.token)
    for one in done.tables.values():
        again = reweigh.ReferenceTable.from_pretrained(one.save_pretrained(tmp_path / "again"))
        assert again.fingerprint == one.fingerprint
    if name == "prob":
        assert "matched" not in table.about
        pooled = np.repeat(done.observations.values[0].astype(np.float64), done.observations.count)
        assert table.b0 == pytest.approx(np.median(pooled))
        return
    assert np.array_equal(done.observations.ranks, ranked.observations.values)
    seen = ranked.observations
    target = mean_edit(seen.token, seen.values[0], seen.count, ranked_references(ranked))
    assert table.about["matched"]["target"] == pytest.approx(target)
    own = done.observations
    assert mean_edit(own.token, own.values[0], own.count, own.register(2, rule=lambda g, s: len(g) >= 2)) == (
        pytest.approx(target + table.about["matched"]["residual"], abs=1e-12)
    )


def ranked_references(done):
    seen = done.observations
    return register(seen.token, seen.values[0], seen.count, rule=lambda group, _scale: len(group) >= 2)


def test_the_record_of_dmrr_is_what_it_was(calibrated):
    for table in calibrated["dmrr"].tables.values():
        assert not {"readout", "matched"} & set(table.about)
    assert calibrated["dmrr"].observations.ranks is None


@pytest.mark.parametrize("name", NAMES)
def test_the_edit_is_that_of_the_readouts_own_table(case, calibrated, name):
    table, inputs = calibrated[name].tables[2], case.inputs()
    session = reweigh.attach(case.model, case.processor, table=table, beta=1.5)
    with session.using(trace=True) as request:
        case.model.generate(**inputs, max_new_tokens=4, do_sample=False)
    [logits] = twin.lens(case.model, inputs, 2)
    evidence = twin_readout(name, logits)
    assert request.evidence[0].readout == name
    np.testing.assert_allclose(
        request.evidence[0].at(2).numpy(), evidence[table.tokens], rtol=1e-4, atol=1e-6
    )
    rows = [row for step in request.trace.steps() for row in step.candidates if row.reference is not None]
    assert rows
    for row in rows:
        s = min(max((table.reference(row.token) - evidence[row.token]) / table.b0, 0), 1)
        assert row.shift == pytest.approx(1.5 * s, abs=2e-3)


def test_evidence_of_another_readout_is_refused(case, calibrated):
    inputs = case.inputs()
    given = reweigh.measure(case.model, inputs, layers=[2])
    session = reweigh.attach(case.model, case.processor, table=calibrated["zscore"].tables[2])
    with (
        session.using(evidence=given),
        pytest.raises(MismatchError, match="zscore"),
    ):
        case.model.generate(**inputs, max_new_tokens=2)


def test_an_unknown_readout_is_reported(case):
    with pytest.raises(UnknownNameError, match="'rank'"):
        reweigh.calibrate(case.model, case.processor, [picture(1, (70, 50))], readout="rank")
