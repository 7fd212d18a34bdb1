"""Studies run into a folder: files of the same numbers, nothing computed twice, and the same bytes after a kill."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import reweigh
from reweigh.errors import CalibrationError, InputError, ReweighError, UnknownNameError
from reweigh.files.outputs import RECORD
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.paper import folder as running
from reweigh.lab.paper.folder import run_studies
from reweigh.lab.paper.study import Study, compute, row
from reweigh.lab.views.charts import chart
from reweigh.registry import Registry

computed: list[str] = []


class Count(Study):
    """Counts images."""

    name = "count"
    title = "Counting"
    labels = ("tab:none",)
    keys = (("what", "what is counted"), ("n", "how many"))

    def compute(self, material):
        computed.append(self.name)
        number = len(material.evaluation)
        return Frame(
            [
                row(Estimate(number / 3, 1.0, float("inf")), what="images", n=number),
                row(float("nan"), what="none", n=None),
            ]
        )

    def sentences(self, frame, material):
        return [f"There are {frame.rows[0]['n']} images."]

    def draw(self, frame, path):
        with chart(path) as panel:
            panel.plot([0, frame.rows[0]["n"]], [0, 1])


class Broken(Count):
    name = "broken"

    def compute(self, material):
        return Frame([row(1.0, what="images")])


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
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != RECORD}


def test_table_figure_and_sentences_are_written_once(material, tmp_path):
    [outcome] = run_studies(["count"], material, tmp_path)
    whole = tree(tmp_path / "count")
    assert set(whole) == {
        "table.csv", "frame.json", "figure.png", "figure.svg", "sentences.md", "study.json",
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(whole["table.csv"].decode())))
    kept = json.loads(whole["frame.json"])
    written = {"what": "images", "n": "40", "value": repr(40 / 3), "low": "1.0", "high": "", "reason": ""}
    assert rows[0] == written
    assert kept["rows"][0] == {"what": "images", "n": 40, "value": 40 / 3, "low": 1.0, "high": None}
    assert reweigh.read(tmp_path / "count") == outcome.frame
    assert outcome.frame.about["study"] == "count"
    assert json.loads(whole["study.json"])["rows"] == 2
    assert whole["sentences.md"] == b"There are 40 images.\n"
    [again] = run_studies(["count"], material, tmp_path)
    assert computed == ["count"]
    assert again == outcome


@pytest.mark.parametrize("lost", ["study.json", "frame.json", "table.csv", "figure.png"])
def test_what_is_missing_or_altered_is_computed_again_to_the_same_bytes(material, tmp_path, lost):
    run_studies(["count"], material, tmp_path)
    whole = tree(tmp_path / "count")
    path = tmp_path / "count" / lost
    if lost == "study.json":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    if lost in ("table.csv", "figure.png"):  # somebody's edit is not replaced before it is out of the way
        with pytest.raises(InputError, match=lost):
            run_studies(["count"], material, tmp_path)
        computed.pop()
        path.unlink()
    run_studies(["count"], material, tmp_path)
    assert computed == ["count", "count"]
    assert tree(tmp_path / "count") == whole


def test_what_a_killed_writer_left_goes(material, tmp_path):
    run_studies(["count"], material, tmp_path)
    whole = tree(tmp_path / "count")
    (tmp_path / "count" / "study.json").unlink()
    (tmp_path / "count" / ".figure.png.2f402645.reweigh-part").touch()
    run_studies(["count"], material, tmp_path)
    assert tree(tmp_path / "count") == whole


def test_other_material_is_computed_anew(material, tmp_path):
    run_studies(["count"], material, tmp_path)
    material.fingerprint, material.evaluation = "def", range(33)
    [outcome] = run_studies(["count"], material, tmp_path)
    assert outcome.frame.rows[0]["n"] == 33


def test_an_unmet_precondition_is_reported_instead_of_a_number(material, tmp_path):
    material.evaluation = range(7)
    [outcome] = run_studies(["count"], material, tmp_path)
    assert "7 images" in outcome.unmet
    assert set(tree(tmp_path / "count")) == {"table.csv", "frame.json", "sentences.md", "study.json"}
    assert "7 images" in (tmp_path / "count" / "sentences.md").read_text()


def test_a_readout_without_a_usable_table_is_reported(material):
    class Unmatched(Count):
        def compute(self, material):
            raise CalibrationError("no scale gives the mean edit", hint="calibrate on more")

    outcome = compute(Unmatched, material)
    assert "scale" in outcome.unmet
    assert not outcome.frame


def test_a_row_must_have_the_keys_of_its_study(material):
    with pytest.raises(ReweighError, match="keys"):
        compute(Broken, material)
    with pytest.raises(UnknownNameError):
        run_studies(["cout"], material, Path("x"))
