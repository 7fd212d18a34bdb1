"""``reweigh calibrate --sketch`` and what ``reweigh table`` does with the result."""

from __future__ import annotations

import pytest

from reweigh.calibration.result import Calibration
from reweigh.tables.table import ReferenceTable


@pytest.fixture
def given(checkpoint, photos):
    return ["calibrate", checkpoint("llava"), photos, "-l", "1", "-l", "3", "--max-new-tokens", "8"]


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_sketched_shards_merge_to_the_whole_and_give_the_table_of_the_observations(
    cli, given, calibrated, tmp_path
):
    whole = cli(*given, "-o", tmp_path / "whole", "--sketch", "1024", "--json").json
    assert whole["images"] == 8
    assert whole["observations"] == len(Calibration.load(calibrated).observations)
    for number in (1, 2):
        cli(*given, "-o", tmp_path / str(number), "--sketch", "1024", "--shard", f"{number}/2")
    for first, second in ((1, 2), (2, 1)):
        out = tmp_path / f"merged-{first}"
        cli("table", "merge", tmp_path / str(first), tmp_path / str(second), "-o", out)
        assert tree(out) == tree(tmp_path / "whole")
    for layer in (1, 3):  # so few images leave nothing to round
        told = ReferenceTable.load(calibrated, layer=layer).compare(
            ReferenceTable.load(tmp_path / "whole", layer=layer)
        )
        assert told["b0"][0] == told["b0"][1]
        assert (told["only_first"], told["only_second"], told["max_abs_log_ratio"]) == (0, 0, 0.0)
    mixed = cli("table", "merge", tmp_path / "1", calibrated, "-o", tmp_path / "mixed")
    assert (mixed.code, "--sketch 1024" in mixed.err) == (
        1,
        True,
    )


def test_a_table_from_sketches_tells_its_error_and_registers_again(cli, given, tmp_path):
    done = cli(*given, "-o", tmp_path / "rough", "--sketch", "16")
    assert "from sketches of 16 bins: b(v) within " in done.out
    page = cli("table", "show", tmp_path / "rough", "--layer", "3", "--json").json
    assert page["made_with"]["sketch"]["bins"] == 16
    assert page["made_with"]["sketch"]["rank_error"] >= 0
    assert (
        "tokens undecided and not registered" in cli("table", "show", tmp_path / "rough", "--layer", "3").out
    )
    again = cli(
        "table", "register", tmp_path / "rough", "-o", tmp_path / "again", "--rule", "count-9", "-l", "3"
    )
    assert again.code == 0
    assert ReferenceTable.load(tmp_path / "again").made_with["rule"] == "count-9"
    fewer = cli("table", "register", tmp_path / "rough", "-o", tmp_path / "few", "--size", "3")
    assert (fewer.code, "apart" in fewer.err) == (1, True)
    assert "--sketch" in fewer.err
    other = cli(*given, "-o", tmp_path / "rough")
    assert "--sketch 16" in other.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sketch", "8"], "65,536"),
        (["--sketch", "64", "--readout", "zscore"], "zscore"),
    ],
)
def test_what_cannot_be_sketched_is_refused_before_a_model_is_loaded(
    cli, photos, tmp_path, monkeypatch, options, message
):
    from reweigh.cli import common

    monkeypatch.setattr(common.Weights, "load", None)
    done = cli("calibrate", "nobody/nothing", photos, "-o", tmp_path / "out", *options)
    assert (done.code, message in done.err) == (1, True)
