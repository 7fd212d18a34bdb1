"""``reweigh calibrate``: what it writes, says and refuses."""

from __future__ import annotations

import pytest

import reweigh
from reweigh.files.artifacts import only_one
from reweigh.tables.table import ReferenceTable


@pytest.fixture
def arguments(checkpoint, photos, calibrated):
    return [
        "calibrate", checkpoint("llava"), photos, "-o", calibrated, "-l", "1", "-l", "3", "--max-new-tokens", "8"
    ]  # fmt: skip


def test_it_wrote_a_table_for_each_layer(calibrated):
    names = {str(path.relative_to(calibrated)) for path in calibrated.rglob("*") if path.is_file()}
    tables = {"layer-1.safetensors", "layer-3.safetensors"}
    assert names == {".lock", "record.json", "rows.jsonl", "manifest.json", *tables}
    assert len(ReferenceTable.from_pretrained(calibrated, layer=3)) > 20


def test_the_same_command_again_is_a_no_op_with_the_same_report(cli, arguments, calibrated):
    before = {path: path.stat().st_mtime_ns for path in calibrated.rglob("*")}
    done = cli(*arguments, "--json")
    assert {path: path.stat().st_mtime_ns for path in calibrated.rglob("*")} == before
    page = done.json
    assert page["images"] == 8
    assert [skip["name"] for skip in page["skipped"]] == ["broken.png"]
    assert [table["layer"] for table in page["tables"]] == [1, 3]
    text = cli(*arguments)
    assert text.out.startswith("8 images, 1 skipped, ")
    assert f"next: reweigh describe {arguments[1]} PICTURE --table {calibrated}" in text.err
    assert f"layer 3: b0 = {page['tables'][1]['b0']:.6g}" in text.out


def test_skipped_images_are_named_on_stderr(cli, checkpoint, photos, tmp_path):
    done = cli(
        "calibrate", checkpoint("llava"), photos, "-o", tmp_path / "out", "--max-new-tokens", "1", "--json"
    )
    assert done.json["images"] == 8
    assert "skipped broken.png: " in done.err


def test_a_folder_that_another_process_writes_to_is_refused(cli, arguments, calibrated):
    with only_one(calibrated):
        done = cli(*arguments)
    assert (done.code, str(calibrated) in done.err) == (1, True)


def test_other_settings_are_refused_by_name(cli, arguments):
    done = cli(*arguments, "--rule", "count-5")
    assert done.code == 1
    assert "'count-5'" in done.err


def test_another_readout_is_matched_recorded_and_told(cli, checkpoint, photos, tmp_path):
    from reweigh.families.load import load

    model, processor = load(checkpoint("llava"))
    settings = {"layers": [2], "max_new_tokens": 6, "readout": "zscore", "rule": "count-2"}
    reweigh.calibrate(model, processor, photos, out=tmp_path / "z", **settings)
    assert "read as zscore" in cli("table", "show", tmp_path / "z").out
    assert ReferenceTable.from_pretrained(tmp_path / "z").readout == "zscore"
    register = ["table", "register", tmp_path / "z", "-o", tmp_path / "again", "--rule", "count-2"]
    assert "b0 matched to DMRR's mean edit" in cli(*register).out
    [row] = cli(*register, "--json", "--overwrite").json["tables"]
    assert set(row["matched"]) == {"scale", "target", "residual"}
    assert row["b0"] == row["matched"]["scale"] > 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-l", "4"], "layer 4"),
        (["--rule", "x"], "rule"),
        (["--model-option", "dtype=int8"], "int8"),
        (["--engine", "x"], "'x'"),
    ],
)
def test_bad_options_are_one_message(cli, checkpoint, photos, tmp_path, more, message):
    done = cli("calibrate", checkpoint("llava"), photos, "-o", tmp_path / "out", *more)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_bad_images_are_one_message(cli, checkpoint, tmp_path):
    model, out = checkpoint("llava"), tmp_path / "out"
    (tmp_path / "empty").mkdir()
    assert "no image" in cli("calibrate", model, tmp_path / "empty", "-o", out).err
    assert "manifest" in cli("calibrate", model, tmp_path / "gone", "-o", out).err
    (tmp_path / "empty" / "a.png").write_bytes(b"")
    done = cli("calibrate", model, tmp_path / "empty", "-o", out)
    assert done.code == 1
    assert "1 images" in done.err


def test_an_out_that_is_a_file_is_one_message(cli, checkpoint, photos, tmp_path):
    (tmp_path / "file").write_text("")
    done = cli("calibrate", checkpoint("llava"), photos, "-o", tmp_path / "file", "--max-new-tokens", "1")
    assert done.code == 1
    assert "written" in done.err


def test_a_processor_without_chat_template_needs_a_template(cli, checkpoint, photos, tmp_path):
    bare = checkpoint("llava", bare=True)
    done = cli("calibrate", bare, photos, "-o", tmp_path / "out")
    assert done.code == 1
    assert "chat template" in done.err
    assert "template=" in done.err
    template = "USER: <image>\n{prompt} ASSISTANT:"
    again = cli(
        "calibrate",
        bare,
        photos,
        "-o",
        tmp_path / "out",
        "--max-new-tokens",
        "1",
        "--model-option",
        f"template={template}",
        "--json",
    )
    assert again.code == 1  # the folder was claimed without a template
    done = cli(
        "calibrate",
        bare,
        photos,
        "-o",
        tmp_path / "2",
        "--max-new-tokens",
        "1",
        "--model-option",
        f"template={template}",
        "--json",
    )
    assert done.json["images"] == 8


def test_shards_by_hand_merge_to_the_whole(cli, arguments, calibrated, tmp_path):
    """What an array of cluster jobs does: a shard each, then one merge."""
    at = arguments.index(calibrated)
    for part in ("1", "2"):
        cli(*arguments[:at], tmp_path / part, *arguments[at + 1 :], "--shard", f"{part}/2")
    cli("table", "merge", tmp_path / "2", tmp_path / "1", "-o", tmp_path / "whole")
    files = [path.relative_to(calibrated) for path in calibrated.rglob("*") if path.is_file()]
    assert {name: (tmp_path / "whole" / name).read_bytes() for name in files} == {
        name: (calibrated / name).read_bytes() for name in files
    }
    refused = cli(*arguments[:at], tmp_path / "x", *arguments[at + 1 :], "--shard", "3")
    assert refused.code == 1
    assert "'3'" in refused.err
