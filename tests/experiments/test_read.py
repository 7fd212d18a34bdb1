"""What is finished in a folder comes back as a frame, or is refused by name."""

from __future__ import annotations

import pytest

import reweigh
from reweigh.errors import ArtifactError, InputError
from reweigh.estimate import Estimate
from reweigh.experiments.experiment import FRAME, write_frame
from reweigh.files.artifacts import sha256_file, write_json
from reweigh.files.seals import write_sealed
from reweigh.results.frame import Frame, Row

MADE = Frame([Row({"arm": "base", "against": None}, Estimate(1.0, 0.0, 2.0))], {"model": "world"})


def test_the_frame_of_an_experiment_comes_back(tmp_path):
    write_frame(MADE, tmp_path)
    assert reweigh.read(tmp_path) == MADE
    assert reweigh.read(str(tmp_path)) == MADE
    text = (tmp_path / FRAME).read_text()
    (tmp_path / FRAME).write_text(text.replace("2.0", "3.0"))
    with pytest.raises(ArtifactError, match="altered"):
        reweigh.read(tmp_path)


def test_a_study_comes_back_if_its_table_is_the_one_that_was_sealed(tmp_path):
    folder = tmp_path / "scale"
    folder.mkdir()
    write_json(folder / "table.json", MADE.to_json())
    write_sealed(folder / "study.json", {"files": {"table.json": sha256_file(folder / "table.json")}})
    assert reweigh.read(folder) == MADE
    with pytest.raises(InputError, match="several") as told:
        reweigh.read(tmp_path)
    assert "scale" in str(told.value.hint)
    write_json(folder / "table.json", Frame().to_json())
    with pytest.raises(ArtifactError, match="altered"):
        reweigh.read(folder)


def test_what_holds_no_frame_is_reported(tmp_path):
    with pytest.raises(InputError, match="results"):
        reweigh.read(tmp_path)
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(InputError, match="earlier"):
        reweigh.read(tmp_path)
