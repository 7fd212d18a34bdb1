"""The page of a study folder: contents, sentences, tables and record; what was not computed says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reweigh.paper.studies.confidence import Confidence
from reweigh.paper.studies.report import number, write_report
from reweigh.paper.studies.study import Outcome
from reweigh.results.charts import chart, dots

RECORD = {
    "identity": {"model_id": "a <model>", "blocks": 5},
    "images": {"evaluation": 500, "calibration": 400},
    "layer": 2,
    "beta": 2.1,
    "resamples": 2000,
    "seed": 42,
}
ROWS = (
    {"quantity": "hallucinated, %", "value": 16.66667, "low": 9.8, "high": 25.4, "count": 60},
    {"quantity": "difference of medians", "value": None, "low": None, "high": None, "count": 0},
)


@pytest.fixture
def page(tmp_path: Path) -> str:
    with chart(tmp_path / "confidence" / "figure") as panel:
        dots(panel, {"": {"a": 1.0}})
    outcome = Outcome(Confidence, ROWS, ("Of <these> 16.7% are.",))
    return write_report(tmp_path, [outcome], RECORD).read_text()


def test_contents_sentences_figure_table_and_record(page: str) -> None:
    assert f'href="#{Confidence.name}"' in page
    assert f'id="{Confidence.name}"' in page
    assert "Of &lt;these&gt; 16.7% are." in page
    assert "a &lt;model&gt;, layer 2, beta 2.1: 500 evaluation and 400 calibration images" in page
    assert "16.67" in page
    assert "[9.8, 25.4]" in page
    assert "Identity of the model" in page


def test_nothing_is_asked_of_other_places(page: str) -> None:
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert "@import" not in page
    assert "<script" not in page


def test_what_was_not_computed_says_why(tmp_path: Path) -> None:
    told = "Confidence does not subsume the evidence: not computed, 3 images are fewer than 30."
    outcome = Outcome(Confidence, (), (told,), "3 images are fewer than 30")
    page = write_report(tmp_path, [outcome], RECORD).read_text()
    assert told in page
    assert "not computed" in page
    assert "<figure>" not in page


def test_numbers_have_four_digits_and_whole_ones_none() -> None:
    assert [number(one) for one in (None, 3, 2580.0, 0.00324809, -1.23456, "x")] == [
        *("–", "3", "2,580", "0.003248", "-1.235", "x")
    ]
