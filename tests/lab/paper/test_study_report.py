"""The page of a study folder: contents, sentences, tables and record; what was not computed says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.analyses.confidence import Confidence
from reweigh.lab.paper.folder import Significant, write_report
from reweigh.lab.paper.study import Outcome, row
from reweigh.lab.views.charts import chart, dots

RECORD = {
    "identity": {"model_id": "a <model>", "blocks": 5},
    "images": {"evaluation": 500, "calibration": 400},
    "layer": 2,
    "beta": 2.1,
    "resamples": 2000,
    "seed": 42,
}
FRAME = Frame(
    [
        row(Estimate(16.66667, 9.8, 25.4), quantity="hallucinated, %", count=60),
        row(None, quantity="difference of medians", count=0),
    ]
)


@pytest.fixture
def page(tmp_path: Path) -> str:
    with chart(tmp_path / "confidence" / "figure") as panel:
        dots(panel, {"": {"a": 1.0}})
    outcome = Outcome(Confidence, FRAME, ("Of <these> 16.7% are.",))
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


def test_what_was_not_computed_says_why_under_a_title_that_claims_nothing(tmp_path: Path) -> None:
    outcome = Outcome(Confidence, Frame(), ("Not computed: 3 images are too few.",), "3 images are too few")
    page = write_report(tmp_path, [outcome], RECORD).read_text()
    assert "Not computed: 3 images are too few." in page
    assert "<figure>" not in page
    claims = re.compile(r"\b(is|are|does|do|not|beats?|outperforms?|removes?|lowers?)\b")
    titles = [STUDIES[name].title for name in STUDIES]
    assert [title for title in titles if claims.search(title)] == []


def test_numbers_have_four_digits_and_whole_ones_none() -> None:
    column = Significant("x")
    assert [column.number(one) for one in (None, 3, 2580.0, 0.00324809, -1.23456)] == [
        *("–", "3", "2,580", "0.003248", "-1.235")
    ]
