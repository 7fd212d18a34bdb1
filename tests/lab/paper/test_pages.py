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
from reweigh.lab.paper.layouts import tables_of
from reweigh.lab.paper.measured import Measured, read_results
from reweigh.lab.paper.pages import DATA, INDEX, write_paper
from reweigh.lab.paper.published import published
from reweigh.lab.paper.study import Entry, Outcome, row
from reweigh.lab.runs.record import RESULTS
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.types import Item, Summary
from reweigh.lab.views.report import write_frame

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


def test_measured_numbers_stand_in_rows_of_their_own_model(study: Path, tmp_path: Path) -> None:
    write_paper(read_results([study]), tmp_path / "paper")
    text = section(tmp_path / "paper", "tab:detection-not-mitigation")
    assert "Published: LLaVA-1.5-7B; 500 images of MS COCO val2014." in text
    assert (
        "Measured: reweigh world; 500 evaluation images, layer 2, beta 2.1; by reweigh study detection."
        in text
    )
    assert "reweigh world is not one of the paper&#39;s models" in (tmp_path / "paper" / INDEX).read_text()
    assert "It was &lt;measured&gt;." in text
    lines = (tmp_path / "paper" / "tables" / "tab-detection-not-mitigation.md").read_text().splitlines()
    assert lines[2] == "| Model | Signal |  | CHAIR_S ↓ | CHAIR_I ↓ | Removed ↑ | Introduced ↓ | Net ↑ |"
    assert lines[4] == "| LLaVA-1.5-7B | rank | published | 44.8 | 12.67 | 329 | 198 | 131 |"
    assert lines[6] == "| reweigh world | rank | measured | 38.0 [37.0, 39.0] | – | – | – | 90 [89, 91] |"


def test_a_model_of_the_paper_stands_below_its_published_numbers(tmp_path: Path) -> None:
    values = {Entry("VCD", "CHAIR_S"): Estimate(58.0, 54.0, 62.0), Entry("mine", "CHAIR_S"): Estimate(40.0)}
    ours = Measured("llava-hf/llava-1.5-7b-hf", "500 records of CHAIR", "reweigh compare", values)
    [shown] = tables_of(published()["tab:model-scaling"], [ours])
    at = [row[:3] for row in shown.rows].index(["LLaVA-1.5-7B", "Base", "published"])
    assert shown.rows[at + 2][:4] == ["LLaVA-1.5-7B", "VCD", "measured", Estimate(58.0, 54.0, 62.0)]
    [full] = tables_of(published()["tab:chair-full"], [ours])
    assert [column.heading for column in full.columns][3:] == [
        *("Base", "VCD", "OPERA", "DoLa", "PAI", "ReVisiT", "ReWEIGH", "mine")
    ]
    assert [row[:3] for row in full.rows[:3]] == [
        ["LLaVA-1.5-7B", "CHAIR_S ↓", "published"],
        ["LLaVA-1.5-7B", "CHAIR_S ↓", "measured"],
        ["LLaVA-1.5-7B", "CHAIR_I ↓", "published"],
    ]
    marks = {full.rows[0][j]: full.place(0, j) for j in range(3, len(full.columns))}
    assert marks[Estimate(42.4)] == "best", "as in the paper"
    assert marks[Estimate(44.8)] == "second"
    assert full.place(1, 4) == "second", "measured numbers are ranked among themselves"


def test_the_grid_has_the_paper_s_columns_and_the_base_in_every_layer() -> None:
    values = {Entry("Base", "F1"): Estimate(80.0), Entry("layer 2, beta 0.5", "F1"): Estimate(81.0)}
    paper, here = tables_of(
        published()["tab:layer-beta-grid"], [Measured("m", "9 tuning records", "reweigh study grid", values)]
    )
    assert [name for name, _ in paper.groups] == ["layer 28", "layer 29", "layer 30"]
    assert [row[0] for row in paper.rows] == ["0", *(f"{beta / 10:g}" for beta in range(1, 16))]
    assert [[row[0], row[-1]] for row in here.rows] == [["0", Estimate(80.0)], ["0.5", Estimate(81.0)]]


def test_every_number_of_the_paper_is_in_its_tables() -> None:
    for table in published().values():
        shown = [
            cell
            for one in tables_of(table, [])
            for row in one.rows
            for cell in row
            if isinstance(cell, Estimate)
        ]
        known = [value for values in table.values.values() for value in values.values()]
        assert sorted(map(str, shown)) == sorted(map(str, known)), table.label


def test_settings_fill_the_tables_that_measure_nothing() -> None:
    [models] = tables_of(published()["tab:model-checkpoints"], [])
    assert len(models.rows) == 11
    assert models.rows[0][:4] == [
        "LLaVA-1.5-7B",
        "liuhaotian/llava-v1.5-7b",
        "Vicuna-7B-v1.5",
        "llava-hf/llava-1.5-7b-hf",
    ]
    [arms] = tables_of(published()["tab:ablation-definitions"], [])
    assert [row[0] for row in arms.rows][:2] == ["Full method", "Global reference"]


def described(*texts: str) -> Scored:
    """Descriptions whose first word is an object that is not there, where it has a capital."""
    items = [
        Item(
            id=number,
            image=number,
            counts={},
            details={
                "mentions": [{"start": 0, "end": 3, "word": text[:3], "hallucinated": text[0].isupper()}]
            },
        )
        for number, text in enumerate(texts)
    ]
    summary = Summary.of(items, benchmark="amber-generative", metrics={})
    return Scored(items, summary, texts=dict(enumerate(texts)))


def test_descriptions_of_amber_give_an_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {"base": described("cat.", "Bus <b>."), "reweigh": described("cat.", "dog.")}
    for arm in runs:
        (tmp_path / "made" / "amber-generative" / arm).mkdir(parents=True)
        (tmp_path / "made" / "amber-generative" / arm / RESULTS).touch()
    monkeypatch.setattr("reweigh.lab.paper.pages.read_scored", lambda folder: runs[folder.name])
    keys = {"benchmark": "amber-generative", "arm": "base", "figure": "chair", "against": None}
    write_frame(Frame([Row(keys, Estimate(4.0))], {"model": "m"}), tmp_path / "made")
    write_paper(read_results([tmp_path / "made"]), tmp_path / "paper")
    shown = section(tmp_path / "paper", "fig:amber-examples")
    assert (
        '<h4>base</h4><p class="said"><span class="hallucinated" title="Bus">Bus</span> &lt;b&gt;.</p>'
        in shown
    )
    assert '<h4>ReWEIGH</h4><p class="said"><span class="grounded" title="dog">dog</span>.</p>' in shown
    assert "cat." not in shown, "nothing was removed there"


def test_orders_that_differ_are_named(study: Path, tmp_path: Path) -> None:
    data = write_paper(read_results([study]), tmp_path / "paper")
    assert data == read_sealed(tmp_path / "paper" / DATA)
    [end] = data["tab:detection-not-mitigation"]["measured"]
    assert end["orders"] == {"compared": 2, "agree": 1}
    assert end["differ"] == ["Net: rank > probability in the paper, rank < probability here"]
    [text] = data["text:detection"]["measured"]
    assert text["orders"] == {"compared": 2, "agree": 1}
    assert text["compared_with"] == "LLaVA-1.5-7B"


def test_what_was_not_run_or_not_computed_says_so(study: Path, tmp_path: Path) -> None:
    data = write_paper(read_results([study]), tmp_path / "paper")
    assert data["tab:confidence-blindness"]["measured"] == []  # its precondition was not met
    page = section(tmp_path / "paper", "tab:confidence-blindness")
    assert "Not run." in page
    assert "reweigh study confidence" in page
    page = section(tmp_path / "paper", "tab:ablation-amber-detail")
    assert "Not measured: " in page


def test_an_altered_study_is_not_believed(study: Path) -> None:
    table = study / "detection" / "frame.json"
    table.write_text(table.read_text().replace("38.0", "18.0"))
    assert "tab:detection-not-mitigation" not in read_results([study])
