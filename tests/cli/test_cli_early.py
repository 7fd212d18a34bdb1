"""Cheap mistakes are found before a model is loaded, and the embedded model says what it cannot know."""

from __future__ import annotations

import pytest
from PIL import Image

from reweigh.cli import common
from reweigh.errors import ImageError
from reweigh.world.scenes import scenes

VCD = ["-b", "world", "-o", "{}/out", "--decoder", "vcd"]


@pytest.fixture
def unloaded(cli, monkeypatch):
    """The command line where loading a model is an error."""

    def load(*_args, **_options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(common.Loading, "load", load)
    return cli


@pytest.fixture
def drawn(tmp_path):
    path = tmp_path / "scene.png"
    next(iter(scenes("evaluation", 1, 0))).image().save(path)
    return path


@pytest.mark.parametrize("command", ["describe", "doctor"])
def test_a_missing_picture(unloaded, tmp_path, command):
    done = unloaded(command, "world", tmp_path / "gone.png")
    assert done.code == 1
    assert "gone.png" in done.err


def test_a_table_that_is_none(unloaded, drawn, tmp_path):
    (tmp_path / "empty").mkdir()
    done = unloaded("describe", "world", drawn, "--table", tmp_path / "empty")
    assert done.code == 1
    assert "reference table" in done.err


def test_a_layer_that_the_table_lacks(unloaded, drawn):
    done = unloaded("describe", "world", drawn, "--layer", 9)
    assert done.code == 1
    assert "layer 9" in done.err
    assert "1, 2, 3" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate", "world", "{}", "-o", "{}/out"], "no image"),
        (["calibrate", "world", "{}/gone", "-o", "{}/out"], "manifest"),
        (["calibrate", "world", "{}", "-o", "{}/out", "--rule", "often"], "often"),
        (["calibrate", "world", "{}", "-o", "{}/out", "--model-option", "dtyp=a"], "did you mean dtype"),
        (["calibrate", "world", "{}", "-o", "{}/out", "--model-option", "trust_remote_code=yes"], "true"),
        (["calibrate", "world", "{}", "-o", "{}/out", "--shard", "half"], "i/n"),
        (["eval", "run", "world", "-b", "world", "-o", "{}/out", "--decoder", "vdc"], "did you mean"),
        (["eval", "run", "world", *VCD, "--decoder-option", "alfa=1"], "did you mean alpha"),
        (["compare", "world", "-m", "base,vdc", "-o", "{}/out"], "did you mean"),
        (["compare", "world", "-m", "vcd", "--method-option", "vcd.alfa=1", "-o", "{}/out"], "alpha"),
        (["tune", "world", "--betas", "much", "-o", "{}/out"], "betas"),
        (["ablate", "world", "--arms", "globl", "-o", "{}/out"], "did you mean global"),
        (["ablate", "world", "--beta", "-1", "-o", "{}/out"], "finite"),
        (["demo", "-o", "{}/report"], "/report.html"),
        (["serve", "world", "--beta", "nan"], "finite"),
        (["serve", "world", "--table", "{}"], "reference table"),
        (["serve", "world", "--layer", "9"], "layer 9"),
        (["serve", "world", "--limit", "image=9"], "did you mean images"),
        (["serve", "world", "--limit", "images=2.5"], "whole number"),
        (["serve", "world", "--limit", "seconds=0"], "positive"),
        (["eval", "run", "world", "-b", "world", "-o", "{}/out", "--layer", "9"], "layer 9"),
        (
            ["compare", "world", "-m", "reweigh", "--method-option", "reweigh.layer=9", "-o", "{}/out"],
            "layer 9",
        ),
    ],
)
def test_a_bad_option_or_folder(unloaded, tmp_path, arguments, message):
    done = unloaded(*(one.replace("{}", str(tmp_path)) for one in arguments))
    assert done.code == 1
    assert message in done.err


@pytest.mark.parametrize("command", ["compare", "tune", "ablate", "study all", "eval run"])
def test_drawn_scenes_do_not_judge_another_model(unloaded, tmp_path, command):
    done = unloaded(*command.split(), "my/llava", "-o", tmp_path / "out")
    assert done.code == 1
    assert "-b objects" in done.err


def test_what_ray_cannot_read(unloaded, tmp_path):
    run = ("eval", "run", "world", "--decoder", "base", "-o", tmp_path / "out", "--option", "scenes=1")
    assert "did you mean gpus" in unloaded(*run, "--ray", "local,gpu=1").err
    assert "workers" in unloaded(*run, "--ray", "local,workers=half").err


def test_why_and_check_are_for_reweigh(unloaded, drawn):
    for option in ("--why", "--check"):
        assert "--decoder vcd" in unloaded("describe", "world", drawn, "--decoder", "vcd", option).err


def test_a_device_that_is_not_there(tmp_path):
    from reweigh.errors import InputError
    from reweigh.families.load import load

    with pytest.raises(InputError, match="gpu"):
        load(tmp_path / "nothing", device="gpu")


def test_the_embedded_model_warns_once_of_what_is_not_a_drawing(drawn, tmp_path, capsys):
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        Image.new("RGB", (640, 480)).save(path)
    common.require_pictures("world", [drawn, *paths])
    told = capsys.readouterr().err
    assert told.count("warning:") == 1
    assert "0.png and 2 more" in told
    assert "knows only its own drawings" in told
    common.require_pictures("world", [drawn])
    common.require_pictures("another/model", paths)
    assert capsys.readouterr().err == ""


def test_the_embedded_model_warns_of_a_folder_of_photographs(unloaded, tmp_path):
    folder = tmp_path / "photographs"
    folder.mkdir()
    for number in range(12):
        Image.new("RGB", (640, 480)).save(folder / f"{number:02}.png")
    (folder / "00.png").write_bytes(b"none")  # is told of when it is its turn
    done = unloaded("calibrate", "world", folder, "-o", tmp_path / "out")
    assert "01.png and 6 more" in done.err
    assert done.err.count("warning:") == 1


def test_a_picture_that_cannot_be_read_is_reported_for_any_model(tmp_path):
    with pytest.raises(ImageError, match="gone"):
        common.require_pictures("another/model", [tmp_path / "gone.png"])


def test_a_misspelt_option_is_found_before_a_picture_is_drawn(unloaded, tmp_path):
    done = unloaded("compare", "world", "-m", "vcd", "--method-option", "vcd.alhpa=1", "-o", tmp_path / "out")
    assert "alhpa" in done.err
    assert not list(tmp_path.rglob("*.png"))


@pytest.mark.parametrize("command", [["ablate"], ["tune"], ["study", "all"]])
def test_a_benchmark_without_the_figures_is_refused_before_its_data_are_asked_for(
    unloaded, tmp_path, command
):
    for name in ("mmhal", "pope"):
        done = unloaded(*command, "world", "-b", name, "-o", tmp_path / "out")
        assert "chair_s" in done.err
        assert "reweigh data" not in done.err


@pytest.mark.parametrize("command", ["ablate", "tune", "study"])
def test_the_help_offers_only_benchmarks_that_the_command_accepts(cli, command):
    from reweigh.lab.tasks import BENCHMARKS

    offered = cli(command, "-h").out.split("--benchmark")[1].split("--out")[0]
    names = {name for name in BENCHMARKS if name in offered.replace(",", " ").replace("`", " ").split()}
    assert names == {"chair", "objects", "world"}


def test_studies_are_listed_as_json(cli):
    listed = cli("study", "list", "--json").json
    assert [one["study"] for one in listed][:2] == ["scale", "rescaling"]
    assert all(one["title"] and one["place"] for one in listed)


@pytest.mark.parametrize(
    ("given", "count"), [([], 500), (["--quick"], 100), (["--quick", "--scenes", "500"], 500)]
)
def test_the_demo_describes_as_many_scenes_as_were_asked_for(cli, monkeypatch, tmp_path, given, count):
    class Asked(Exception):
        pass

    def run(*, count, quick):
        raise Asked(count)

    monkeypatch.setattr("reweigh.lab.arms.demo.run", run)
    done = cli("demo", *given, "-o", tmp_path / "report.html")
    assert f"Asked: {count}" in done.err


def test_an_evaluation_draws_into_its_own_folder(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "data"))
    done = cli(
        "eval", "run", "world", "-b", "world", "--limit", 1, "--decoder", "base", "-o", tmp_path / "out"
    )
    assert done.code == 0, done.err
    assert list((tmp_path / "out" / "pictures").rglob("*.png"))
    assert not (tmp_path / "data").exists()
