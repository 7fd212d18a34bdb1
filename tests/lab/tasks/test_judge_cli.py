from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from judge_server import JudgeServer, completion, question_of
from reweigh.cli.app import app
from reweigh.errors import InputError
from reweigh.files.artifacts import append_jsonl, write_json, write_text

ROWS = [
    {"image_src": f"http://x/{i}.jpg", "image_content": ["Cat"], "question": f"Q{i}?", "gt_answer": "A."}
    for i in range(96)
]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    write_json(tmp_path / "response_template.json", ROWS)
    write_text(tmp_path / "mmhal_prompt.txt", "{} {} {} R: {}")
    return tmp_path


def rating(body: dict[str, Any], number: int) -> Any:
    said = question_of(body).rsplit("R: ", 1)[1]
    return completion("no idea" if said == "a95" else f"Fine. Rating: {int(said[1:]) % 7}")


def test_mmhal_from_the_command_line(data: Path) -> None:
    write_json(data / "answers.json", [row | {"model_answer": f"a{i}"} for i, row in enumerate(ROWS)])
    run = CliRunner().invoke
    with JudgeServer(rating) as server:
        command = ["eval", "score", str(data / "answers.json"), "-b", "mmhal", "--data", str(data)]
        command += [
            "--judge-option",
            f"url={server.url}",
            "--judge-option",
            "concurrency=4",
            "--out",
            str(data / "out"),
        ]
        done = run(app, command)
        assert done.exit_code == 0, done.output + str(done.exception)
        assert len(server.requests) == 96
        assert {request["model"] for request in server.requests} == {"gpt-4.1-mini-2025-04-14"}
    assert "1 repl" in done.stderr
    # The judge is gone; its verdicts are not.
    again = run(app, [*command, "--json"])
    results = json.loads(again.stdout)
    flat = results["results"]["mmhal"]
    assert flat["score,none"] == pytest.approx(sum(i % 7 for i in range(95)) / 96)
    assert results["summary"]["scorer"]["unparsed"] == 1
    assert results["summary"]["official"]["average_score"] == round(sum(i % 7 for i in range(95)) / 96, 2)
    page = (data / "out" / "report.html").read_text()
    assert "MMHal-Bench: answers" in page
    assert "reply not readable" in page


def test_mmvet_from_the_command_line(data: Path) -> None:
    rows = {
        f"v1_{i}": {"imagename": "a.png", "question": "?", "answer": "b", "capability": ["ocr"]}
        for i in range(3)
    }
    write_json(data / "mm-vet.json", rows)
    write_text(data / "mine.txt", "Grade.")
    append_jsonl(data / "said.jsonl", [{"id": f"v1_{i}", "response": "b"} for i in range(3)])
    with JudgeServer(lambda body, number: completion("0.85")) as server:
        command = ["eval", "score", str(data / "said.jsonl"), "-b", "mmvet", "--data", str(data), "--json"]
        command += [
            "--judge-option",
            f"url={server.url}",
            "--judge-option",
            f"prompt={data / 'mine.txt'}",
            "--out",
            str(data / "out"),
        ]
        strict = json.loads(CliRunner().invoke(app, command).stdout)
        official = json.loads(
            CliRunner()
            .invoke(app, [*command, "--judge-option", "rules=official", "--option", "runs=2"])
            .stdout
        )
    assert strict["results"]["mmvet"]["total,none"] == 0
    assert strict["summary"]["scorer"]["unparsed"] == 3
    assert official["summary"]["official"]["total"] == 85
    assert official["summary"]["scorer"]["rules"] == "official"


def test_without_a_key_the_hint_says_how(data: Path) -> None:
    append_jsonl(data / "said.jsonl", [{"id": 0, "response": "b"}])
    command = [
        "eval",
        "score",
        str(data / "said.jsonl"),
        "-b",
        "mmhal",
        "--data",
        str(data),
        "--out",
        str(data / "o"),
    ]
    failed = CliRunner().invoke(app, command)
    assert isinstance(failed.exception, InputError)
    assert "OPENAI_API_KEY" in str(failed.exception)
    assert "--judge-option url=" in str(failed.exception)
