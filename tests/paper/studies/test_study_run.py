"""Studies run into a folder: files of the same numbers, nothing computed twice, and the same bytes after a kill."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from reweigh.errors import CalibrationError, ReweighError, UnknownNameError
from reweigh.estimate import Estimate
from reweigh.paper.studies import run as running
from reweigh.paper.studies.run import run_studies, to_csv
from reweigh.paper.studies.study import ESTIMATE, Column, Study, as_estimate, compute, estimate, find
from reweigh.registry import Registry
from reweigh.results.charts import chart

computed: list[str] = []


class Count(Study):
    """Counts images."""

    name = "count"
    title = "Counting"
    reproduces = "Tab. none"
    columns = (Column("what", "text", "what is counted"), Column("n", "integer", "how many"), *ESTIMATE)

    def rows(self, material):
        computed.append(self.name)
        number = len(material.evaluation)
        return [
            {"what": "images", "n": number, **estimate(Estimate(number / 3, 1.0, float("inf")))},
            {"what": "none", "n": None, **estimate(float("nan"))},
        ]

    def sentences(self, rows, material):
        return [f"There are {rows[0]['n']} images."]

    def draw(self, rows, path):
        with chart(path) as panel:
            panel.plot([0, rows[0]["n"]], [0, 1])


class Broken(Count):
    name = "broken"

    def rows(self, material):
        return [{"what": "images"}]


@pytest.fixture
def material(monkeypatch):
    computed.clear()
    monkeypatch.setattr(
        running, "STUDIES", Registry("study", {"count": Count, "broken": Broken}, group="none")
    )
    return SimpleNamespace(
        evaluation=range(40), fingerprint="abc", record=lambda: {"images": 40}, calibration=range(40)
    )


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_table_figure_and_sentences_are_written_once(material, tmp_path):
    [outcome] = run_studies(["count"], material, tmp_path, show=False)
    whole = tree(tmp_path / "count")
    assert set(whole) == {
        "table.csv", "table.json", "figure.png", "figure.svg", "sentences.md", "study.json",
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(whole["table.csv"].decode())))
    kept = json.loads(whole["table.json"])
    assert rows[0] == {"what": "images", "n": "40", "value": repr(40 / 3), "low": "1.0", "high": ""}
    assert kept["rows"][0] == {"what": "images", "n": 40, "value": 40 / 3, "low": 1.0, "high": None}
    assert [column["kind"] for column in kept["columns"]] == ["text", "integer", *["number"] * 3]
    assert whole["sentences.md"] == b"There are 40 images.\n"
    [again] = run_studies(["count"], material, tmp_path, show=False)
    assert computed == ["count"]
    assert again == outcome


@pytest.mark.parametrize("lost", ["study.json", "table.csv", "figure.png"])
def test_what_is_missing_or_altered_is_computed_again_to_the_same_bytes(material, tmp_path, lost):
    run_studies(["count"], material, tmp_path, show=False)
    whole = tree(tmp_path / "count")
    path = tmp_path / "count" / lost
    if lost == "study.json":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    run_studies(["count"], material, tmp_path, show=False)
    assert computed == ["count", "count"]
    assert tree(tmp_path / "count") == whole


def test_what_a_killed_writer_left_goes(material, tmp_path):
    run_studies(["count"], material, tmp_path, show=False)
    whole = tree(tmp_path / "count")
    (tmp_path / "count" / "study.json").unlink()
    (tmp_path / "count" / ".figure.png.2f402645.reweigh-part").touch()
    run_studies(["count"], material, tmp_path, show=False)
    assert tree(tmp_path / "count") == whole


def test_other_material_is_computed_anew(material, tmp_path):
    run_studies(["count"], material, tmp_path, show=False)
    material.fingerprint, material.evaluation = "def", range(33)
    [outcome] = run_studies(["count"], material, tmp_path, show=False)
    assert outcome.rows[0]["n"] == 33


def test_an_unmet_precondition_is_told_instead_of_a_number(material, tmp_path):
    material.evaluation = range(7)
    [outcome] = run_studies(["count"], material, tmp_path, show=False)
    assert "7 images" in outcome.unmet
    assert set(tree(tmp_path / "count")) == {"table.csv", "table.json", "sentences.md", "study.json"}
    assert "7 images" in (tmp_path / "count" / "sentences.md").read_text()


def test_a_readout_without_a_usable_table_is_told(material):
    class Unmatched(Count):
        def rows(self, material):
            raise CalibrationError("no scale gives the mean edit", hint="calibrate on more")

    outcome = compute(Unmatched, material)
    assert "scale" in outcome.unmet
    assert outcome.rows == ()


def test_a_row_must_have_its_columns(material):
    with pytest.raises(ReweighError, match="row"):
        compute(Broken, material)
    with pytest.raises(UnknownNameError):
        run_studies(["cout"], material, Path("x"), show=False)


def test_small_helpers():
    rows = [
        {"a": 1, "value": 2.0, "low": None, "high": None},
        {"a": 2, "value": 3.0, "low": 1.0, "high": 4.0},
    ]
    assert find(rows, a=2) is rows[1]
    with pytest.raises(ReweighError, match="0 rows"):
        find(rows, a=3)
    assert as_estimate(rows[1]) == Estimate(3.0, 1.0, 4.0)
    assert to_csv(["a", "low"], rows) == "a,low\n1,\n2,1.0\n"
