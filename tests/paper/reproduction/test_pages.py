"""Pages of the paper: every label has one, measured numbers stand under their own model's name, what was not run says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reweigh.files.artifacts import read_json, write_json
from reweigh.files.seals import write_sealed
from reweigh.paper.reproduction.commands import RUN
from reweigh.paper.reproduction.pages import DATA, INDEX, file_name, write_pages
from reweigh.paper.reproduction.published import Entry, published
from reweigh.paper.reproduction.sources import read_results

RECORD = {
    "identity": {"model_id": "reweigh world"},
    "images": {"evaluation": 500, "calibration": 500},
    "layer": 2,
    "beta": 2.1,
}


def row(part: str, quantity: str, arm: str, value: float, at: str = "") -> dict[str, object]:
    about = {"part": part, "quantity": quantity, "arm": arm, "at": at}
    return {**about, "value": value, "low": value - 1, "high": value + 1}


def finish(folder: Path, study: str, rows: list[dict[str, object]], unmet: str | None = None) -> None:
    write_json(
        folder / study / "table.json", {"rows": rows, "unmet": unmet, "sentences": ["It was <measured>."]}
    )
    write_sealed(folder / study / "study.json", {"material": RECORD})


@pytest.fixture
def study(tmp_path: Path) -> Path:
    rows = [
        row("detection", "AUROC", "rank", 0.71),
        row("detection", "AUROC", "probability", 0.65),
        row("raw control", "selectivity", "rank minus probability", -0.3, at="window"),
        row("end to end", "chair_s", "rank", 38.0),
        row("end to end", "chair_s", "probability", 45.0),
        row("end to end", "net", "rank", 90.0),
        row("end to end", "net", "probability", 120.0),
    ]
    finish(tmp_path / "study", "detection", rows)
    finish(tmp_path / "study", "confidence", [], unmet="the base answers make no hallucinated mention")
    return tmp_path / "study"


def test_every_label_has_a_page_that_asks_nothing_of_other_places(study: Path, tmp_path: Path) -> None:
    write_pages(read_results([study]), tmp_path / "paper")
    index = (tmp_path / "paper" / INDEX).read_text()
    for label in published():
        text = (tmp_path / "paper" / file_name(label)).read_text()
        assert label in text
        assert f'href="{file_name(label)}"' in index
        for address in re.findall(r'(?:src|href)="([^"]*)"', text):
            assert address.startswith(("data:", "#")) or (tmp_path / "paper" / address).is_file()


def test_measured_numbers_stand_under_their_own_model(study: Path, tmp_path: Path) -> None:
    write_pages(read_results([study]), tmp_path / "paper")
    text = (tmp_path / "paper" / file_name("tab:detection-not-mitigation")).read_text()
    assert "published: LLaVA-1.5-7B" in text
    assert "measured: reweigh world" in text
    assert "none of the paper&#x27;s models" in text
    assert "difference to LLaVA-1.5-7B" in text
    assert "-6.8<" in text  # 38.0 here, 44.8 there
    assert "not run" in text  # CHAIR_I was not measured
    assert "It was &lt;measured&gt;." in text


def test_orders_that_differ_are_named(study: Path, tmp_path: Path) -> None:
    data = write_pages(read_results([study]), tmp_path / "paper")
    assert data == read_json(tmp_path / "paper" / DATA)
    end = data["tab:detection-not-mitigation"]
    assert end["orders"] == {"compared": 2, "agree": 1}
    assert end["differ"] == ["Net: rank > probability in the paper, rank < probability here"]
    text = data["text:detection"]
    assert text["orders"] == {"compared": 2, "agree": 1}
    assert text["compared_with"] == "LLaVA-1.5-7B"


def test_what_was_not_run_or_not_computed_says_so(study: Path, tmp_path: Path) -> None:
    data = write_pages(read_results([study]), tmp_path / "paper")
    assert data["tab:confidence-blindness"]["measured"] is None  # its precondition was not met
    page = (tmp_path / "paper" / file_name("tab:confidence-blindness")).read_text()
    assert "Not run." in page
    assert "reweigh study confidence" in page
    assert set(RUN) <= set(published())
    silent = {label for label in published() if label not in RUN}
    assert silent == {
        *(
            "fig:method",
            "tab:model-checkpoints",
            "tab:evaluation-inventory",
            "alg:method",
            "tab:ablation-definitions",
        )
    }


def test_an_ablation_and_a_comparison_fill_their_tables(tmp_path: Path) -> None:
    metric = {"value": 40.0, "low": 38.0, "high": 42.0}
    figures = {name: metric for name in ("chair_s", "chair_i", "recall", "f1", "length")}
    arm = {**figures, "fire": 80.0, "edits": {"escapes": 0}}
    arms = [
        {"arm": "base", **figures, "fire": None, "edits": None},
        {"arm": "full", **arm},
        {"arm": "zscore", **arm},
    ]
    about = {"model": "m", "benchmark": {"name": "world"}, "records": 9, "layer": 1, "beta": 1.0}
    write_json(tmp_path / "a" / "ablation.json", {**about, "arms": arms})
    cells = {"CHAIR/CHAIR_S": {"value": 41.0}, "Cost/Latency": {"value": 1.1}}
    write_json(
        tmp_path / "c" / "comparison.json", {"model": "m", "rows": [{"method": "ReWEIGH", "figures": cells}]}
    )
    found = read_results([tmp_path / "a", tmp_path / "c"])
    assert found["tab:ablation-chair-detail"].values[Entry("Full method", "Fire %")] == 80.0
    assert Entry("standardized logit, native", "F1") in found["tab:normalized-readout-control"].values
    assert found["tab:chair-amber"].values == {
        Entry("ReWEIGH", "CHAIR_S"): 41.0,
        Entry("ReWEIGH", "Latency"): 1.1,
    }
