"""``reweigh table``: show, merge, register, compare and push, without any model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reweigh.calibration.result import Calibration
from reweigh.job import Job
from reweigh.tables.table import ReferenceTable
from reweigh.world import table_path


@pytest.fixture(scope="module")
def shards(tmp_path_factory, calibrated):
    """The calibration cut in two, as two runs would have left it."""
    whole = Job.read(calibrated)
    folder = tmp_path_factory.mktemp("shards")
    for number in (1, 2):
        with Job.open(folder / str(number - 1), whole.record, parts=whole.parts) as job:
            for part in job.pending(f"{number}/2"):
                job.append(part, whole.part(part))
    return folder


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    """Nothing here may load one."""
    from reweigh.cli import common

    monkeypatch.setattr(common.Loading, "load", None)


def test_show(cli, calibrated, checkpoint):
    table = ReferenceTable.from_pretrained(calibrated, layer=3)
    page = cli("table", "show", calibrated, "--layer", "3", "--json").json
    assert page["fingerprint"] == table.fingerprint
    assert (page["b0"], page["registered"]) == (table.b0, len(table))
    text = cli("table", "show", calibrated / "layer-3.safetensors").out
    for words in (
        str(checkpoint("llava")),
        "layer 3 of 4",
        "rule stable",
        f"{len(table):,} tokens",
        "from 8 images",
        "point: none recorded",
    ):
        assert words in text
    assert page["point"] is None
    several = cli("table", "show", calibrated)
    assert several.code == 1
    assert "1, 3" in several.err


def test_show_says_which_point_was_recorded(cli):
    shown = cli("table", "show", table_path())
    assert "point: layer 2, beta 3.5 (tuned on 300 records of world" in shown.out
    assert cli("table", "show", table_path(), "--json").json["point"]["beta"] == 3.5
    assert "point: none recorded for this layer" in cli("table", "show", table_path(), "--layer", 3).out


def test_show_names_the_generation_settings_of_the_checkpoint(cli, calibrated, tmp_path):
    assert "decoded with" not in cli("table", "show", calibrated / "layer-1.safetensors").out
    table = ReferenceTable.from_pretrained(calibrated, layer=1)
    settings = {"repetition_penalty": 1.05, "min_length": 3}
    replace(table, about={**table.about, "generation": settings}).save_pretrained(tmp_path)
    assert "decoded with min_length 3, repetition_penalty 1.05" in cli("table", "show", tmp_path).out


def test_show_refuses_a_damaged_table(cli, calibrated, tmp_path):
    file = Path(shutil.copy(calibrated / "layer-1.safetensors", tmp_path))
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    done = cli("table", "show", file)
    assert (done.code, done.out) == (1, "")
    assert "cut" in done.err


def test_merged_shards_are_the_whole_in_any_order(cli, calibrated, shards, tmp_path):
    page = cli("table", "merge", shards / "0", shards / "1", "-o", tmp_path / "a", "--json").json
    assert page["images"] == 8
    assert [table["layer"] for table in page["tables"]] == [1, 3]
    assert "8 images" in cli("table", "merge", shards / "1", shards / "0", "-o", tmp_path / "b").out
    assert tree(tmp_path / "a") == tree(tmp_path / "b") == tree(calibrated)


def test_a_merge_without_all_shards_is_refused(cli, shards, tmp_path):
    done = cli("table", "merge", shards / "0", shards / "0", "-o", tmp_path / "x")
    assert done.code == 1
    assert "4 of 9 batches" in done.err


def test_registering_does_not_overwrite(cli, calibrated, tmp_path):
    before = tree(calibrated)
    register = ("table", "register", calibrated, "--rule", "count-9", "-o")
    done = cli(*register, f"{calibrated}/../{calibrated.name}")
    assert (done.code, "overwritten" in done.err) == (1, True)
    assert tree(calibrated) == before
    assert cli(*register, tmp_path).code == 0
    done = cli(*register, tmp_path)
    assert (done.code, "--overwrite" in done.err) == (1, True)
    assert cli(*register, tmp_path, "--overwrite").code == 0


def test_an_unrelated_file_is_left_alone(cli, shards, calibrated, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    merge = ("table", "merge", shards / "0", shards / "1", "-o")
    assert cli(*merge, tmp_path / "a.txt").code == 1
    assert cli(*merge, tmp_path).code == 0
    assert tree(tmp_path) == tree(calibrated) | {"a.txt": b"a"}


def test_the_same_merge_may_be_made_again_and_another_may_not(cli, shards, calibrated, tmp_path):
    out = tmp_path / "out"
    merge = ("table", "merge", shards / "1", shards / "0", "-o", out)
    assert cli(*merge) == cli(*merge)
    assert tree(out) == tree(calibrated)


def test_what_is_not_a_calibration_is_refused(cli, tmp_path, calibrated):
    done = cli("table", "register", tmp_path, "-o", tmp_path / "x")
    assert done.code == 1
    assert "record.json" in done.err
    done = cli("table", "merge", calibrated / "layer-1.safetensors", "-o", tmp_path / "x")
    assert done.code == 1


def test_registering_again_under_another_rule(cli, calibrated, tmp_path):
    page = cli("table", "register", calibrated, "-o", tmp_path / "new", "--rule", "count-3", "--json").json
    whole = Calibration.load(calibrated)
    expected = whole.observations.register(3, rule=lambda values, _scale: len(values) >= 3)
    new = ReferenceTable.from_pretrained(tmp_path / "new", layer=3)
    assert new.tokens.tolist() == expected.tokens.tolist()
    assert page["tables"][1]["registered"] == len(expected.tokens)
    assert new.about["rule"] == "count-3"


def test_comparing(cli, calibrated, tmp_path):
    other = tmp_path / "other"
    cli("table", "register", calibrated, "-o", other, "--rule", "count-3")
    same = cli("table", "show", calibrated, calibrated, "--layer", "1", "--json").json
    assert same["equal"]
    page = cli(
        "table", "show", calibrated / "layer-1.safetensors", other / "layer-1.safetensors", "--json"
    ).json
    assert not page["equal"]
    assert page["common"] + page["only_first"] == page["registered"][0]
    assert (
        "equal: no"
        in cli("table", "show", calibrated / "layer-1.safetensors", calibrated / "layer-3.safetensors").out
    )


def test_pushing(cli, calibrated, monkeypatch):
    pushed = []

    def push(folder, repo, **options):
        pushed.append((folder, repo, options))
        return f"hub/{repo}"

    monkeypatch.setattr("reweigh.integrations.export.push_table", push)
    done = cli("table", "push", calibrated, "me/table", "--layer", "3", "--private")
    assert done.out == "hub/me/table\n"
    assert "next: model.generate" in done.err
    assert pushed == [(str(calibrated), "me/table", {"layer": 3, "private": True})]


def test_exporting_a_folder_that_is_not_there(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("asked the Hub"))
    for name in ("./x/y", "x", tmp_path / "x"):
        done = cli("table", "export", name, "-o", "out")
        assert (done.code, f"no folder {name}" in done.err) == (1, True)


def test_exporting(cli, calibrated, tmp_path):
    out = tmp_path / "out"
    done = cli("table", "export", calibrated, "--layer", "3", "-o", out)
    assert str(out / "custom_generate/generate.py") in done.err
    assert "next: model.generate" in done.err
    assert ReferenceTable.from_pretrained(out).layer == 3
