"""The judge systemone against a real `transformers serve` with a small text model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reweigh.benchmarks.judge.kinds import JudgeSettings, SystemOne
from reweigh.benchmarks.judge.protocol import JudgeError, ScaleQuestion
from reweigh.cli.app import app
from reweigh.files.artifacts import append_jsonl, write_json, write_text
from reweigh.runs.results import read_scored
from served import Served, serving, text_model

pytestmark = pytest.mark.slow
LEVELS = tuple(f"Rating: {rating}" for rating in range(7))
QUESTION = ScaleQuestion(state="A dog sleeps.", instructions="How good is it?", levels=LEVELS)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(text_model(tmp_path_factory.mktemp("judge"))) as server:
        yield server


def expected_probabilities(model: str, question: ScaleQuestion) -> list[float]:
    """A twin in this process: the prompt written out by hand, the letters' logits, a softmax in float64."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokens, language = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(question.levels)]
    lines = [f"{letter}. {level}" for letter, level in zip(letters, question.levels, strict=True)]
    closing = f"Answer with the letter of the level that fits best (A to {letters[-1]}) only."
    text = "\n".join([f"{question.state}\n", question.instructions, *lines, closing])
    ids = tokens(f"user: {text}\nassistant:", add_special_tokens=False, return_tensors="pt")
    with torch.inference_mode():
        logits = language(**ids).logits[0, -1]
    own = [tokens.convert_tokens_to_ids(letter) for letter in letters]
    return [float(p) for p in logits[own].double().softmax(-1)]


def test_the_distribution_is_the_models_own(served: Served) -> None:
    with SystemOne(served.model, base_url=served.url) as judge:
        found = judge.ask(QUESTION)
    twin = expected_probabilities(served.model, QUESTION)
    assert list(found) == pytest.approx(twin, abs=1e-5)
    assert found.level == max(range(7), key=twin.__getitem__)
    assert found.expected == pytest.approx(sum(level * p for level, p in enumerate(twin)), abs=1e-4)
    assert len(set(twin)) == 7, "a model that cannot tell levels apart tests nothing"


def test_refusals_in_the_servers_own_words(served: Served) -> None:
    pinned = "pinned"
    with SystemOne("other", base_url=served.url) as judge, pytest.raises(JudgeError, match=pinned):
        judge.ask(QUESTION)
    with SystemOne(served.model, base_url=served.url) as judge:
        with pytest.raises(JudgeError, match="--decision-config"):
            judge.affirm("A dog.", ["Is there a dog?"])
        with pytest.raises(JudgeError, match="image input"):
            judge.affirm("A dog.", ["Is there a dog?"], ["data:image/png;base64,AAAA"])
        with pytest.raises(JudgeError, match="HTTP 422"):
            judge.decide("A dog.", {"x": {"type": "wish"}})
    lost, elsewhere = "(?s)Not Found.*POST", served.url.replace("/v1", "/v9")
    with SystemOne(served.model, base_url=elsewhere) as judge, pytest.raises(JudgeError, match=lost):
        judge.ask(QUESTION)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "cache"))
    row = {"image_content": ["Cat"], "gt_answer": "A."}
    rows = [row | {"image_src": f"http://x/{i}.jpg", "question": f"Q{i}?"} for i in range(96)]
    write_json(tmp_path / "response_template.json", rows)
    write_text(tmp_path / "mmhal_prompt.txt", "Contents {} question {} answer {} response {}")
    vet = {
        f"v{i}": {"imagename": "a.png", "question": f"{i}?", "answer": "b", "capability": ["ocr"]}
        for i in range(12)
    }
    write_json(tmp_path / "mm-vet.json", vet)
    write_text(tmp_path / "mmvet_prompt.txt", "Question | Truth | Said | Grade")
    append_jsonl(tmp_path / "mmhal.jsonl", [{"id": i, "response": f"a dog {i}"} for i in range(96)])
    append_jsonl(tmp_path / "mmvet.jsonl", [{"id": f"v{i}", "response": f"a dog {i}"} for i in range(12)])
    return tmp_path


def score(data: Path, name: str, served: Served, *more: str) -> Any:
    asked = ["eval", "score", str(data / f"{name}.jsonl"), "-b", name, "--data", str(data)]
    asked += [
        "--judge",
        "systemone",
        "--judge-option",
        f"model={served.model}",
        "--judge-option",
        f"url={served.url}",
    ]
    return CliRunner().invoke(app, [*asked, "--out", str(data / "out" / name), *more])


def test_both_benchmarks_from_the_command_line(data: Path, served: Served) -> None:
    for name, count, headline in (("mmhal", 96, "expected score"), ("mmvet", 12, "expected total")):
        done = score(data, name, served)
        assert done.exit_code == 0, done.output + repr(done.exception)
        assert headline in done.stdout
        run = read_scored(data / "out" / name, "systemone")
        assert len(run.items) == count
        for item in run.items:
            given = list(item.details["probabilities"].values())
            assert sum(given) == pytest.approx(1, abs=1e-5)
            best = max(range(len(given)), key=given.__getitem__)
            assert item.details["score"] == (best if name == "mmhal" else best / 10)
        assert run.results["summary"]["scorer"]["judge"]["model"] == served.model


def test_a_server_that_was_killed_is_reported_and_its_verdicts_are_kept(data: Path, served: Served) -> None:
    """The last test of this server."""
    settings = JudgeSettings(kind="systemone", model=served.model, url=served.url, cache=data / "kept")
    asked = [ScaleQuestion(state=str(i), instructions="?", levels=LEVELS) for i in range(3)]
    rater: Any = settings.open()
    first = [rater.ask(question) for question in asked]
    rater.close()
    served.kill()
    gone = "(?s)connection.*kept"
    with (
        SystemOne(served.model, base_url=served.url, attempts=2, first_wait=0.01) as judge,
        pytest.raises(JudgeError, match=gone),
    ):
        judge.ask(QUESTION)
    again: Any = settings.open()
    assert [again.ask(question) for question in asked] == first
    again.close()
