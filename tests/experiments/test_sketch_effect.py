"""What sketches change on the embedded world, against the table that ships with it."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.calibration.result import Calibration
from reweigh.experiments.sketches import BASE, EXACT, FIGURES, answer, differences, sketched
from reweigh.tables.table import ReferenceTable
from reweigh.world import operating_point, path, table_path


@pytest.fixture(scope="module")
def exact():
    return ReferenceTable.load(table_path(), layer=operating_point()["layer"])


@pytest.fixture(scope="module")
def observations():
    return Calibration.load(table_path()).exact()


def test_with_all_bits_nothing_changes(observations, exact):
    change = sketched(observations, exact, 23)
    assert np.array_equal(change.table.tokens, exact.tokens)
    assert np.array_equal(change.table.references, exact.references)
    assert change.table.scale == exact.scale
    assert (change.lost, change.gained, change.mean, change.largest, change.scale) == (0, 0, 0.0, 0.0, 0.0)


def test_with_fewer_bits_changes_stay_within_the_bounds_that_the_table_states(observations, exact):
    before = 0.0
    for bits in (9, 6, 3):
        change = sketched(observations, exact, bits)
        assert before < change.mean < change.largest <= change.error_bounds["value_error"]
        assert abs(change.scale) <= change.error_bounds["scale_error"]
        assert change.gained == 0
        assert change.lost <= len(change.error_bounds["undecided"])
        undecided = set(change.error_bounds["undecided"])
        assert {*exact.tokens} - {*change.table.tokens} <= undecided
        before = change.mean
    assert change.lost > 0


@pytest.mark.slow
def test_answers_of_equal_tables_are_equal(observations, exact, tmp_path):
    from reweigh.families.load import load
    from reweigh.runs.model import describe_model
    from reweigh.runs.open import open_task
    from reweigh.runs.task import Runs

    loaded = load(path())
    task = open_task("world", limit=3, drawings=tmp_path / "pictures")
    runs = Runs(task, {"id": "world"} | describe_model(*loaded), 3)
    tables = {EXACT: exact, "same": sketched(observations, exact, 23).table}
    found = answer(loaded, tables, runs, tmp_path / "runs", beta=3.5)
    gaps = differences(found, EXACT, ["same", BASE])
    assert [gaps["same"][figure].value for figure in FIGURES] == [0.0] * 4
    assert found[EXACT].items != found[BASE].items
