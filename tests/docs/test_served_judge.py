"""The commands of docs/evaluate.md about a judge of one's own run as printed beside a real `transformers serve`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from blocks import ROOT, commands, read_blocks
from PIL import Image
from typer.testing import CliRunner

from reweigh.artifacts import write_json, write_text
from reweigh.cli.app import app
from reweigh.engines.answer import Answer
from reweigh.runs.open import open_task
from reweigh.runs.task import Runs
from served import serving, text_model

HERE = "tests/docs/test_served_judge.py"
BLOCKS = [block for block in read_blocks(ROOT / "docs" / "evaluate.md") if HERE in (block.reason or "")]


def made_run(data: Path, folder: Path, said: str) -> None:
    """A finished run of MMHal-Bench, as `reweigh eval run` leaves it."""
    runs = Runs(open_task("mmhal", data, images=data), {"id": "me/model"})
    runs.answer(lambda batch: [Answer(f"{said} {batch.start}")], folder, {"decoder": said})


@pytest.mark.slow
def test_the_judges_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (start,), scoring = (list(commands(block.code)) for block in BLOCKS)
    assert start[:2] == ["transformers", "serve"]
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
    text_model(tmp_path / start[2])
    with serving(start[2], *start[3:], cwd=tmp_path) as server:
        for words in scoring:
            here = ["--judge-url", server.url] if "score" in words else []
            done = CliRunner().invoke(app, [*words[1:], *here])
            assert done.exit_code == 0, f"{' '.join(words)}\n{done.output}\n{done.exception!r}"
    assert "expected score" in done.output
    written = {"items-systemone.jsonl", "results-systemone.json", "report-systemone.html"}
    assert set(os.listdir(tmp_path / "runs" / "base")) == {
        "record.json",
        "manifest.jsonl",
        "responses.jsonl",
        *written,
    }
