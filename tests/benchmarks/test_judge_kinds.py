"""Two kinds of judge on the same answers: ratings by hand, and names that keep their scores apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from judge_server import Answer, JudgeServer, completion, decision, likely, question_of
from reweigh.benchmarks.base import Response
from reweigh.benchmarks.judge.kinds import JudgeSettings
from reweigh.benchmarks.judge.protocol import Distribution, JudgeError, ScaleQuestion
from reweigh.benchmarks.mmhal import MMHal, MMHalSystemOne, levels
from reweigh.benchmarks.mmvet import MMVetSystemOne
from reweigh.benchmarks.open import open_benchmark, rated_by
from reweigh.cli.app import app
from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import append_jsonl, write_json, write_text
from reweigh.files.outputs import RECORD
from reweigh.runs.diff import diff_runs
from reweigh.runs.results import read_scored
from reweigh.runs.score import score_paths
from reweigh.runs.task import Runs, open_task
from reweigh.runtime.answer import Answer as Said

ROWS = [
    {"image_src": f"http://x/{i}.jpg", "image_content": ["Cat"], "question": f"Q{i}?", "gt_answer": "A."}
    for i in range(96)
]
KINDS = [["rec"], ["ocr"], ["ocr", "rec"]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    write_json(tmp_path / "response_template.json", ROWS)
    write_text(tmp_path / "mmhal_prompt.txt", "{} {} {} R: {}")
    vet = {
        f"v{i}": {"imagename": "a.png", "question": "?", "answer": "b", "capability": KINDS[i % 3]}
        for i in range(6)
    }
    write_json(tmp_path / "mm-vet.json", vet)
    write_text(tmp_path / "mmvet_prompt.txt", "Grade.")
    return tmp_path


class Scripted:
    """A rater that answers by the last words of the state."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.asked: list[ScaleQuestion] = []

    def describe(self) -> dict[str, Any]:
        return {"kind": "systemone", "model": "scripted", "base_url": "http://here"}

    def ask(self, question: ScaleQuestion) -> Distribution:
        self.asked.append(question)
        return Distribution(self.verdict(question.state))


def peaked(level: int, count: int, p: float = 0.7) -> list[float]:
    return list(likely(level, count, p).values())


def test_mmhal_by_hand(data: Path) -> None:
    # Type 0 gets a sure 6, type 1 a 2 of 60 %, the rest a tie of 3 and 4, which is a 3.
    given = {0: peaked(6, 7, 1.0), 1: peaked(2, 7, 0.6)}
    tie = [0.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0]
    rater = Scripted(lambda state: given.get(int(state.rsplit("R: a")[1]) % 8, tie))
    bench = MMHalSystemOne(data, judge=rater, concurrency=1)
    items, summary = bench.score([Response(i, f"a{i}") for i in range(96)], ids=range(96))
    metrics = {name: metric.value for name, metric in summary.metrics.items()}
    lean = 0.6 * 2 + (0 + 1 + 3 + 4 + 5 + 6) * 0.4 / 6
    assert metrics["score"] == pytest.approx((6 + 2 + 6 * 3) / 8)
    assert metrics["expected_score"] == pytest.approx((6 + lean + 6 * 3.5) / 8)
    assert metrics["hallucination_rate"] == pytest.approx(100 / 8)
    assert metrics["expected_hallucination_rate"] == pytest.approx(100 * (0.6 + 2 * 0.4 / 6) / 8)
    assert metrics["score_attribute"] == 6
    assert metrics["score_holistic"] == 3
    assert "unparsed" not in metrics
    assert (summary.benchmark, summary.official) == ("mmhal-systemone", {})
    assert summary.scorer["judge"]["model"] == "scripted"
    assert items[1].details["probabilities"] == likely(2, 7, 0.6)
    assert (items[1].details["score"], items[2].details["score"]) == (2, 3)
    assert rater.asked[0].state == "Cat Q0? A. R: a0", "what the chat judge is told, word for word"
    assert rater.asked[0].levels[6] == "Rating: 6"
    assert bench.summarize(list(reversed(items))).metrics == summary.metrics


def test_mmhals_levels_are_the_prompts_own() -> None:
    listed = "\n".join(f"- Rating: {rating}, level {rating} " for rating in reversed(range(7)))
    assert levels(listed) == tuple(f"Rating: {rating}, level {rating}" for rating in range(7))
    plain = tuple(f"Rating: {rating}" for rating in range(7))
    assert levels(listed + "\nRating: 3, something else") == plain, "two meanings are none"
    assert levels(listed.replace("Rating: 4", "Score: 4")) == plain


def test_mmvet_by_hand(data: Path) -> None:
    rater = Scripted(lambda state: peaked(int(state.rsplit(" | ", 2)[1]), 11, 0.8))
    bench = MMVetSystemOne(data, judge=rater, concurrency=1)
    grades = [0, 1, 3, 7, 9, 10]
    items, summary = bench.score([Response(f"v{i}", str(grade)) for i, grade in enumerate(grades)])
    metrics = {name: metric.value for name, metric in summary.metrics.items()}
    expected = [0.8 * grade + 0.02 * (55 - grade) for grade in grades]
    assert metrics["total"] == pytest.approx(100 * sum(grades) / 60)
    assert metrics["expected_total"] == pytest.approx(100 * sum(expected) / 60)
    assert metrics["rec"] == pytest.approx(100 * (0 + 3 + 7 + 10) / 40)
    assert metrics["exactly_rec+ocr"] == pytest.approx(100 * (3 + 10) / 20)
    assert metrics["math"] is None
    assert rater.asked[0].levels == (
        "0.0",
        "0.1",
        "0.2",
        "0.3",
        "0.4",
        "0.5",
        "0.6",
        "0.7",
        "0.8",
        "0.9",
        "1.0",
    )
    assert rater.asked[0].state == "Grade.\n? | b | 0 | "
    assert items[4].details["score"] == 0.9
    assert items[4].details["probabilities"]["0.9"] == 0.8


def test_a_judge_of_the_other_kind_is_refused(data: Path) -> None:
    rater = Scripted(lambda state: peaked(0, 7))

    class Talker:
        def describe(self) -> dict[str, Any]:
            return {"model": "m"}

        def ask(self, request: Any) -> str:
            return "Rating: 3"

    with pytest.raises(InputError, match="systemone"):
        MMHal(data, judge=rater).score([Response(0, "a")])
    with pytest.raises(InputError, match="Talker"):
        MMHalSystemOne(data, judge=Talker()).score([Response(0, "a")])
    with pytest.raises(InputError, match="none"):
        MMHalSystemOne(data).score([Response(0, "a")])


def test_names_follow_the_judge(data: Path) -> None:
    assert rated_by("mmvet", "systemone") == "mmvet-systemone"
    assert rated_by("mmvet", "chat") == "mmvet"
    assert rated_by("mmvet-systemone", "systemone") == "mmvet-systemone"
    assert rated_by("pope", "chat") == "pope"
    with pytest.raises(InputError, match="judge"):
        rated_by("pope", "systemone")
    with pytest.raises(InputError, match="--judge systemone"):
        rated_by("mmhal-systemone", "chat")
    with pytest.raises(InputError, match="mmhal"):
        open_task("mmhal-systemone", data)
    compared = CliRunner().invoke(app, ["compare", "world", "-b", "mmhal-systemone"]).exception
    assert "needs a judge model" in str(compared)
    with pytest.raises(InputError, match="'runs'"):
        open_benchmark("mmvet-systemone", data, runs=5)


def talk(body: dict[str, Any], number: int) -> Answer:
    """Both kinds at one address, under one model name: the chat judge gives 5, the closed question a 2."""
    return completion("Rating: 5") if "messages" in body else decision(likely(2))


def command(data: Path, server: JudgeServer, *more: str) -> Any:
    asked = [
        "eval",
        "score",
        str(data / "answers.jsonl"),
        "-b",
        "mmhal",
        "--data",
        str(data),
        "--allow-missing",
    ]
    asked += ["--out", str(data / "out"), "--judge-option", f"url={server.url}", "--judge-option", "model=m"]
    return CliRunner().invoke(app, [*asked, *more])


@pytest.fixture
def answers(data: Path) -> Path:
    append_jsonl(data / "answers.jsonl", [{"id": i, "response": f"a{i}"} for i in range(16)])
    return data


def test_two_judges_on_one_folder_keep_two_sets_of_scores(answers: Path) -> None:
    out = answers / "out"
    with JudgeServer(talk) as server:
        usual = command(answers, server)
        assert usual.exit_code == 0
        assert "MMHal-Bench, answers: 16 responses" in usual.stdout
        plain = {path.name: path.read_bytes() for path in out.iterdir()}
        done = command(answers, server, "--judge", "systemone", "--json")
        assert done.exit_code == 0, done.output
        assert len(server.requests) == 32, "no verdict of one was taken for the other's"
    assert {
        path.name: path.read_bytes() for path in out.iterdir() if path.name in plain and path.name != RECORD
    } == {name: content for name, content in plain.items() if name != RECORD}
    names = {"items-systemone.jsonl", "results-systemone.json", "report-systemone.html"}
    assert {path.name for path in out.iterdir()} == {*plain, *names}
    results = json.loads(done.stdout)
    assert list(results["results"]) == ["mmhal-systemone"]
    assert results["results"]["mmhal-systemone"]["score,none"] == 2
    assert read_scored(out).summary.metrics["score"].value == 5
    assert read_scored(out, "systemone").summary.metrics["score"].value == 2
    page = (out / "report-systemone.html").read_text()
    assert "MMHal-Bench (systemone)" in page
    assert "Rated by m over closed questions" in page
    assert "expected 2.35 (0: 5%" in page


def test_scores_of_one_judge_do_not_pass_for_the_others(answers: Path) -> None:
    out = answers / "out"
    with JudgeServer(talk) as server:
        assert command(answers, server, "--judge", "systemone").exit_code == 0
    with pytest.raises(InputError, match="--judge systemone"):
        read_scored(out)
    (out / "results-systemone.json").rename(out / "results.json")
    (out / "items-systemone.jsonl").rename(out / "items.jsonl")
    with pytest.raises(ArtifactError, match="altered after"):
        read_scored(out)
    # even where the files are named as the results say
    (out / "items-systemone.jsonl").write_bytes((out / "items.jsonl").read_bytes())
    with pytest.raises(ArtifactError, match="systemone"):
        read_scored(out)


def test_a_difference_is_taken_between_scores_of_one_judge(answers: Path, tmp_path: Path) -> None:
    with JudgeServer(talk) as server:
        for name, model in (("one", "m"), ("two", "m"), ("three", "n")):
            for kind in ("chat", "systemone"):
                if (name, kind) == ("three", "systemone"):
                    continue  # the stand-in always answers as m
                more = ["--judge", kind, "--judge-option", f"model={model}", "--out", str(tmp_path / name)]
                assert command(answers, server, *more).exit_code == 0
    run = CliRunner().invoke
    same = [str(tmp_path / "one"), str(tmp_path / "two")]
    found = json.loads(run(app, ["eval", "diff", *same, "--judge", "systemone", "--json"]).stdout)
    assert found["benchmark"] == "mmhal-systemone"
    assert found["before"]["score"]["value"] == 2
    assert json.loads(run(app, ["eval", "diff", *same, "--json"]).stdout)["before"]["score"]["value"] == 5
    shown = run(app, ["eval", "diff", *same, "--judge", "systemone"]).output
    assert "expected score" in shown
    assert "MMHal-Bench (systemone): 16 items" in shown
    with pytest.raises(InputError, match=r"judge\.model"):
        diff_runs(tmp_path / "one", tmp_path / "three")
    with pytest.raises(InputError, match="--judge chat"):
        diff_runs(tmp_path / "one", tmp_path / "three", judge="systemone")
    assert isinstance(run(app, ["eval", "diff", *same, "--judge", "sys"]).exception, InputError)


def test_a_server_that_dies_midway_costs_nothing_that_was_answered(
    answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(body: dict[str, Any], number: int) -> Answer:
        return decision(likely(4)) if number < 10 else (404, {}, b'{"detail": "Not Found"}')

    more = ["--judge", "systemone", "--judge-option", "concurrency=1"]
    with JudgeServer(dying) as server:
        address = server.url
        failed = command(answers, server, *more)
        assert isinstance(failed.exception, JudgeError)
        assert "server" in str(failed.exception)
        assert not (answers / "out").exists()
    settings = JudgeSettings(kind="systemone", model="m", url=address)
    rater = settings.open()
    assert len(list((answers / "cache" / "verdicts").rglob("*.json"))) == 10
    bench: Any = open_benchmark("mmhal-systemone", answers, judge=rater)
    kept, _ = bench.score([Response(i, f"a{i}") for i in range(10)])
    assert {item.details["score"] for item in kept} == {4}


def test_options_of_the_run_that_only_a_chat_judge_knows_are_left_out(data: Path) -> None:
    Image.new("RGB", (4, 4)).save(data / "a.png")
    (data / "images").mkdir()
    (data / "a.png").rename(data / "images" / "a.png")
    runs = Runs(open_task("mmvet", data, options={"runs": 5}), {"id": "m"})
    runs.answer(lambda batch: [Said("b")], data / "run", {"decoder": "base"})
    rated = decision({str(level): float(level == 9) for level in range(11)})
    with JudgeServer(lambda *_: rated) as server:
        settings = JudgeSettings(kind="systemone", model="m", url=server.url)
        run = score_paths([data / "run"], judge=settings)
        assert len(server.requests) == 1, "six equal questions are one"
        with pytest.raises(InputError, match="'runs'"):
            score_paths([data / "run"], judge=settings, options={"runs": 5})
    assert (run.summary.benchmark, run.summary.metrics["total"].value) == (
        "mmvet-systemone",
        pytest.approx(90),
    )
    assert run.record is not None
    assert run.record["benchmark"]["name"] == "mmvet"


def test_rules_and_unjudged_benchmarks_are_refused(answers: Path) -> None:
    with JudgeServer(talk) as server:
        failed = command(answers, server, "--judge", "systemone", "--judge-option", "rules=strict").exception
        assert "rules" in str(failed)
        failed = command(answers, server, "--judge", "oracle").exception
        assert "chat, systemone" in str(failed)
        failed = command(answers, server, "-b", "world", "--judge", "systemone").exception
        assert "judge" in str(failed)
        assert server.requests == []


def test_the_question_reaches_the_server_whole(answers: Path) -> None:
    with JudgeServer(talk) as server:
        command(answers, server, "--judge", "systemone")
        command(answers, server)
    closed = [body for body in server.requests if "state" in body]
    spoken = [body for body in server.requests if "messages" in body]
    assert {body["state"] for body in closed} == {question_of(body) for body in spoken}
    assert len(closed[0]["questions"]["rating"]["criteria"]) == 7
