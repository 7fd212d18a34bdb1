"""The whole path on a small random model: generate with each kind of decoder, resume, score, compare."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.errors import MismatchError
from reweigh.files.artifacts import read_jsonl

run = CliRunner().invoke


@pytest.fixture(scope="module")
def model(checkpoint: Callable[..., Path]) -> str:
    return str(checkpoint("llava"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def table(model: str, place: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    from reweigh.lab.tasks.world import World

    World(place, scenes=4).records()
    folder = tmp_path_factory.mktemp("table")
    done = run(app, ["calibrate", model, str(place), "-o", str(folder), "--max-new-tokens", "8"])
    assert done.exit_code == 0, done.output
    return str(folder)


def command(model: str, place: Path, out: Path, *more: str) -> list[str]:
    return [
        "eval",
        "run",
        model,
        "-b",
        "world",
        "--data",
        str(place),
        "--option",
        "scenes=3",
        "--out",
        str(out),
        *more,
    ]


@pytest.mark.slow
def test_base_and_reweigh_from_run_to_diff(model: str, place: Path, table: str, tmp_path: Path) -> None:
    base, edited = tmp_path / "base", tmp_path / "edited"
    assert run(app, command(model, place, base, "--decoder", "base")).exit_code == 0
    done = run(app, command(model, place, edited, "--table", table, "--beta", "6", "--batch-size", "2"))
    assert done.exit_code == 0, done.output + str(done.exception)
    record = json.loads((edited / "record.json").read_text())["record"]
    assert record["decoding"]["options"]["beta"] == 6
    assert len(record["decoding"]["table_sha256"]) == 64
    assert record["model"]["identity"]["architecture"] == "LlavaForConditionalGeneration"
    assert record["model"]["weights_dtype"] == "float32"
    # Cut the run and go on: the same bytes.
    whole = (edited / "rows.jsonl").read_bytes()
    (edited / "rows.jsonl").write_bytes(whole[: len(whole) // 2])
    (edited / "manifest.json").unlink()
    again = run(app, command(model, place, edited, "--table", table, "--beta", "6", "--batch-size", "2"))
    assert again.exit_code == 0, again.output
    assert (edited / "rows.jsonl").read_bytes() == whole
    for folder in (base, edited):
        assert run(app, ["eval", "score", str(folder), "--data", str(place)]).exit_code == 0
    told = json.loads(run(app, ["eval", "diff", str(base), str(edited), "--json"]).stdout)
    assert told["n"] == 3


@pytest.mark.slow
def test_beta_zero_is_the_base_model(model: str, place: Path, table: str, tmp_path: Path) -> None:
    run(app, command(model, place, tmp_path / "base", "--decoder", "base"))
    run(app, command(model, place, tmp_path / "zero", "--table", table, "--beta", "0"))
    rows = [read_jsonl(tmp_path / name / "rows.jsonl") for name in ("base", "zero")]
    assert len(rows[0]) == 3
    assert [(row["id"], row["response"]) for row in rows[0]] == [
        (row["id"], row["response"]) for row in rows[1]
    ]


@pytest.mark.slow
def test_another_setting_is_refused(model: str, place: Path, table: str, tmp_path: Path) -> None:
    run(app, command(model, place, tmp_path, "--table", table, "--beta", "1"))
    other = run(app, command(model, place, tmp_path, "--table", table, "--beta", "2"))
    assert isinstance(other.exception, MismatchError)
    assert "decoding.options.beta" in str(other.exception)


@pytest.mark.slow
def test_a_sampling_rival_resumes_to_the_same_bytes(model: str, place: Path, tmp_path: Path) -> None:
    arguments = command(model, place, tmp_path, "--decoder", "nucleus")
    assert run(app, arguments).exit_code == 0
    whole = (tmp_path / "rows.jsonl").read_bytes()
    assert (
        json.loads((tmp_path / "record.json").read_text())["record"]["decoding"]["generation"]["do_sample"]
        is True
    )
    (tmp_path / "rows.jsonl").write_bytes(whole[: whole.index(b"\n") + 5])
    (tmp_path / "manifest.json").unlink()
    assert run(app, arguments).exit_code == 0
    assert (tmp_path / "rows.jsonl").read_bytes() == whole


@pytest.mark.slow
def test_a_table_that_a_decoder_does_not_use_is_noted(
    model: str, place: Path, table: str, tmp_path: Path
) -> None:
    done = run(app, command(model, place, tmp_path, "--decoder", "vcd", "--table", table, "--beta", "2"))
    assert done.exit_code == 0, done.output + str(done.exception)
    assert "vcd does not use --table and --beta" in done.stderr
    assert "table" not in json.loads((tmp_path / "record.json").read_text())["record"]["decoding"]["options"]


@pytest.mark.slow
def test_another_length_is_recorded_and_not_mixed(model: str, place: Path, tmp_path: Path) -> None:
    short = command(model, place, tmp_path, "--decoder", "base", "--max-new-tokens", "3")
    assert run(app, short).exit_code == 0
    assert json.loads((tmp_path / "record.json").read_text())["record"]["benchmark"]["max_new_tokens"] == 3
    longer = run(app, command(model, place, tmp_path, "--decoder", "base"))
    assert isinstance(longer.exception, MismatchError)
