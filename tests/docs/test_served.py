"""Commands of the documents that need a server run as printed beside a real `transformers serve`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from blocks import ROOT, commands, read_blocks
from PIL import Image
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.files.artifacts import write_json, write_text
from reweigh.files.outputs import RECORD as OUTPUTS
from reweigh.runs.task import Runs, open_task
from reweigh.runtime.answer import Answer
from reweigh.world import path
from reweigh.world.scenes import scene
from served import serving, text_model, world_settings

HERE = "tests/docs/test_served.py"


def served_commands(page: str) -> tuple[list[str], list[list[str]]]:
    """The command that serves, and those that need it."""
    blocks = [block for block in read_blocks(ROOT / "docs" / page) if HERE in (block.reason or "")]
    (start,), rest = (list(commands(block.code)) for block in blocks)
    assert start[:2] == ["transformers", "serve"]
    return start[2:], rest


def run(words: list[str], *more: str) -> str:
    assert words[0] == "reweigh"
    done = CliRunner().invoke(app, [*words[1:], *more])
    assert done.exit_code == 0, f"{' '.join(words)}\n{done.output}\n{done.exception!r}"
    return done.output


def made_run(data: Path, folder: Path, said: str) -> None:
    """A finished run of MMHal-Bench, as `reweigh eval run` leaves it."""
    runs = Runs(open_task("mmhal", data, images=data), {"id": "me/model"})
    runs.answer(lambda batch: [Answer(f"{said} {batch.start}")], folder, {"decoder": said})


@pytest.mark.slow
def test_the_judges_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (judge, *options), scoring = served_commands("evaluate.md")
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "cache" / "mmhal"
    (data / "images").mkdir(parents=True)
    row = {"image_src": "http://x/0.png", "image_content": ["Cat"], "gt_answer": "A."}
    write_json(data / "response_template.json", [row | {"question": f"Q{i}?"} for i in range(96)])
    write_text(data / "mmhal_prompt.txt", "{} {} {} {}")
    Image.new("RGB", (4, 4)).save(data / "images" / "0.png")
    for name in ("base", "reweigh"):
        made_run(data, tmp_path / "runs" / name, name)
    text_model(tmp_path / judge)
    with serving(judge, *options, cwd=tmp_path) as server:
        for words in scoring:
            shown = run(words, *(["--judge-option", f"url={server.url}"] if "score" in words else []))
    assert "expected score" in shown
    written = {"items-systemone.jsonl", "results-systemone.json", "report-systemone.html"}
    assert set(os.listdir(tmp_path / "runs" / "base")) == {
        "record.json",
        "manifest.jsonl",
        "responses.jsonl",
        OUTPUTS,
        *written,
    }


@pytest.mark.slow
def test_the_verifiers_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few pictures and one point stand for the reader's folder and the whole grid."""
    (verifier, *options), (words,) = served_commands("tune.md")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(path(), tmp_path / verifier)
    folder = tmp_path / words[words.index("--pictures") + 1]
    folder.mkdir()
    for number in range(3):
        scene("calibration", number).image().save(folder / f"{number}.png")
    few = ["--layers", "2", "--betas", "3.5", "--batch-size", "3"]
    with serving(verifier, *options, *world_settings(tmp_path), cwd=tmp_path) as server:
        shown = run(words, "--verifier-url", server.url, *few)
    assert "verifier: " in shown
    assert len((tmp_path / "tuning" / "verdicts.jsonl").read_text().splitlines()) > 3
