"""Pages of the paper: every label has one, measured numbers stand under their own model's name, what was not run says so."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reweigh.files.seals import read_sealed
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.folder import write_study
from reweigh.lab.paper.measured import read_results
from reweigh.lab.paper.pages import DATA, INDEX, write_paper
from reweigh.lab.paper.published import published
from reweigh.lab.paper.study import Outcome, row

RECORD = {
    "identity": {"model_id": "reweigh world"},
    "images": {"evaluation": 500, "calibration": 500},
    "layer": 2,
    "beta": 2.1,
}


def number(part: str, quantity: str, arm: str, value: float, at: str = "") -> Row:
    return row(Estimate(value, value - 1, value + 1), part=part, quantity=quantity, at=at, arm=arm)


def finish(folder: Path, name: str, rows: list[Row], unmet: str | None = None) -> None:
    outcome = Outcome(STUDIES[name], Frame(rows), ("It was <measured>.",), unmet)
    material: Any = SimpleNamespace(record=lambda: RECORD)
    write_study(folder / name, outcome, material, "abc")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(STUDIES["detection"], "panels", ())
    rows = [
        number("detection", "AUROC", "rank", 0.71),
        number("detection", "AUROC", "probability", 0.65),
        number("raw control", "selectivity", "rank minus probability", -0.3, at="window"),
        number("end to end", "chair_s", "rank", 38.0),
        number("end to end", "chair_s", "probability", 45.0),
        number("end to end", "net", "rank", 90.0),
        number("end to end", "net", "probability", 120.0),
    ]
    finish(tmp_path / "study", "detection", rows)
    finish(tmp_path / "study", "confidence", [], unmet="the base answers contain no hallucinated mention")
    return tmp_path / "study"


def section(folder: Path, label: str) -> str:
    """The section of a table or figure on the page."""
    page = (folder / INDEX).read_text()
    return next(part for part in page.split("<section>") if f'<h2 id="{label}">' in part)


def test_every_label_has_a_section_and_the_page_asks_nothing_of_other_places(
    study: Path, tmp_path: Path
) -> None:
    write_paper(read_results([study]), tmp_path / "paper")
    page = (tmp_path / "paper" / INDEX).read_text()
    for label in published():
        assert f'href="#{label}"' in page
        assert published()[label].on in section(tmp_path / "paper", label).replace("&#39;", "'")
    assert all(address.startswith(("data:", "#")) for address in re.findall(r'(?:src|href)="([^"]*)"', page))


def test_measured_numbers_stand_under_their_own_model(study: Path, tmp_path: Path) -> None:
    write_paper(read_results([study]), tmp_path / "paper")
    text = section(tmp_path / "paper", "tab:detection-not-mitigation")
    assert "published: LLaVA-1.5-7B" in text
    assert "measured: reweigh world" in text
    assert "reweigh world is not one of the paper&#39;s models" in (tmp_path / "paper" / INDEX).read_text()
    assert "difference to LLaVA-1.5-7B" in text
    assert "-6.8<" in text  # 38.0 here, 44.8 there
    assert "not run" in text  # CHAIR_I was not measured
    assert "It was &lt;measured&gt;." in text


def test_orders_that_differ_are_named(study: Path, tmp_path: Path) -> None:
    data = write_paper(read_results([study]), tmp_path / "paper")
    assert data == read_sealed(tmp_path / "paper" / DATA)
    end = data["tab:detection-not-mitigation"]
    assert end["orders"] == {"compared": 2, "agree": 1}
    assert end["differ"] == ["Net: rank > probability in the paper, rank < probability here"]
    text = data["text:detection"]
    assert text["orders"] == {"compared": 2, "agree": 1}
    assert text["compared_with"] == "LLaVA-1.5-7B"


def test_what_was_not_run_or_not_computed_says_so(study: Path, tmp_path: Path) -> None:
    data = write_paper(read_results([study]), tmp_path / "paper")
    assert data["tab:confidence-blindness"]["measured"] is None  # its precondition was not met
    page = section(tmp_path / "paper", "tab:confidence-blindness")
    assert "Not run." in page
    assert "reweigh study confidence" in page
    page = section(tmp_path / "paper", "tab:ablation-amber-detail")
    assert "Not measured: " in page


def test_an_altered_study_is_not_believed(study: Path) -> None:
    table = study / "detection" / "frame.json"
    table.write_text(table.read_text().replace("38.0", "18.0"))
    assert "tab:detection-not-mitigation" not in read_results([study])
