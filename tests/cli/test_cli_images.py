"""A folder of images is given alike to every benchmark, whatever options of its own it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from reweigh.cli.benchmark import split_images


@pytest.mark.parametrize(
    ("benchmark", "given", "options", "folder"),
    [
        ("chair", "train2014/", {}, Path("train2014/")),
        ("chair", "100", {"images": 100}, None),  # how many are drawn
        ("pope", "val2014", {}, Path("val2014")),
        ("objects", "mine", {"images": "mine"}, None),  # it opens the folder itself
    ],
)
def test_a_folder_is_taken_out_and_a_number_is_not(benchmark, given, options, folder):
    assert split_images(benchmark, [f"images={given}"]) == (options, folder)
