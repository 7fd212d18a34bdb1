"""Results of any command come back as one frame."""

from __future__ import annotations

import pytest

import reweigh
from reweigh.errors import ArtifactError, InputError
from reweigh.files.seals import write_sealed
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row
from reweigh.lab.views.report import FRAME, write_frame

MADE = Frame([Row({"arm": "base", "against": None}, Estimate(1.0, 0.0, 2.0))], {"model": "world"})


def test_the_frame_of_an_experiment_comes_back(tmp_path):
    write_frame(MADE, tmp_path)
    assert reweigh.read(tmp_path) == MADE
    assert reweigh.read(str(tmp_path)) == MADE
    text = (tmp_path / FRAME).read_text()
    (tmp_path / FRAME).write_text(text.replace("2.0", "3.0"))
    with pytest.raises(ArtifactError, match="altered"):
        reweigh.read(tmp_path)


def test_a_folder_of_studies_names_them(tmp_path):
    write_frame(MADE, tmp_path / "scale")
    write_sealed(tmp_path / "scale" / "study.json", {})
    assert reweigh.read(tmp_path / "scale") == MADE
    with pytest.raises(InputError, match="several") as told:
        reweigh.read(tmp_path)
    assert "scale" in str(told.value.hint)


def test_what_holds_no_frame_is_reported(tmp_path):
    with pytest.raises(InputError, match="results"):
        reweigh.read(tmp_path)
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(InputError, match="results") as told:
        reweigh.read(tmp_path)
    assert "earlier version" in str(told.value.hint)
