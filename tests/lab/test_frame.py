"""Frames: typed keys to estimates, and the ways out of them."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from reweigh.errors import ArtifactError, InputError, MissingExtraError
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row


def row(arm: str, figure: str, against: str | None, *estimate: float) -> Row:
    return Row({"arm": arm, "figure": figure, "against": against}, Estimate(*estimate))


FRAME = Frame(
    [
        row("base", "chair_i", None, 17.1, 16.0, 18.2),
        row("reweigh", "chair_i", None, 9.4, 8.4, 10.5),
        row("reweigh", "chair_i", "base", -7.7, -9.0, -6.4),
        Row({"arm": "reweigh", "figure": "f1", "against": None}, Estimate(None, reason="no objects")),
    ],
    {"model": "world"},
)


def test_rows_are_found_by_their_keys() -> None:
    assert FRAME.one(arm="base", figure="chair_i").value == 17.1
    assert FRAME.get(arm="vcd") is None
    assert len(FRAME.pick(arm=["base", "reweigh"], against=None)) == 3
    assert FRAME.distinct("figure") == ["chair_i", "f1"]
    assert FRAME.pick(arm="base").about == {"model": "world"}
    with pytest.raises(InputError, match="rows have"):
        FRAME.one(arm="reweigh")
    with pytest.raises(InputError, match="method"):
        FRAME.pick(method="base")


def test_differences_are_those_that_were_computed() -> None:
    assert [one.estimate.value for one in FRAME.against("base")] == [-7.7]
    assert len(FRAME.values()) == 3
    with pytest.raises(InputError, match="greedy") as refused:
        FRAME.against("greedy")
    assert "base" in str(refused.value.hint)


def test_equal_keys_and_other_keys_are_refused() -> None:
    with pytest.raises(InputError, match="two rows"):
        Frame([FRAME.rows[0], FRAME.rows[0]])
    with pytest.raises(InputError, match="keys"):
        Frame([FRAME.rows[0], Row({"arm": "base"}, Estimate(1.0))])
    with pytest.raises(InputError, match="low"):
        Frame([Row({"low": 1}, Estimate(1.0))])


def test_json_comes_back_as_it_was() -> None:
    assert Frame.from_json(json.loads(json.dumps(FRAME.to_json()))) == FRAME
    with pytest.raises(ArtifactError, match="frame"):
        Frame.from_json({"rows": 3})


def test_csv_has_every_key_and_part() -> None:
    read = list(csv.DictReader(io.StringIO(FRAME.to_csv())))
    assert read[2] == {"arm": "reweigh", "figure": "chair_i", "against": "base", "value": "-7.7", "low": "-9.0",
                       "high": "-6.4", "reason": ""}  # fmt: skip
    assert read[3]["reason"] == "no objects"


def test_pandas_is_needed_only_for_data_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pandas"):
        FRAME.to_pandas()


def test_a_data_frame_has_the_columns_of_the_csv() -> None:
    pytest.importorskip("pandas", reason="pandas is optional")
    found = FRAME.to_pandas()
    assert list(found.columns) == ["arm", "figure", "against", "value", "low", "high", "reason"]
    assert found[(found.arm == "base")].value.tolist() == [17.1]
    assert found.attrs == {"model": "world"}
