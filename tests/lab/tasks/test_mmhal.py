from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_server import JudgeServer, completion, question_of
from reweigh.errors import InputError
from reweigh.files.artifacts import read_json, write_json, write_text
from reweigh.lab.runs.score import read_sources, score
from reweigh.lab.tasks.base import BENCHMARKS, Response
from reweigh.lab.tasks.judge import CachedJudge, ChatJudge, Request
from reweigh.lab.tasks.mmhal import MMHal, parse_official, parse_strict

PROGRAM = """
import sys
raise SystemExit("a prompt is read, never run")
other = "no"
template = '''Be the judge: {{fair}}.
C {}
Q {}
A {}
R {}
'''
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {
            "image_src": f"https://example.org/photos/{i}_o.jpg",
            "image_content": ["Cat", "Tree"],
            "question": f"What is {i}?",
            "gt_answer": f"It is {i}.",
            "model_answer": "",
        }
        for i in range(96)
    ]
    write_json(tmp_path / "response_template.json", rows)
    write_text(tmp_path / "eval_gpt4.py", PROGRAM)
    return tmp_path


class Scripted:
    """A judge that replies by the answer it finds at the end of the prompt."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.prompts: list[str] = []
        self.lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        return {"model": "scripted"}

    def ask(self, request: Request) -> str:
        text = request.text
        with self.lock:
            self.prompts.append(text)
        return str(self.reply(text))


def echo(text: str) -> str:
    return text.rsplit("R ", 1)[1].strip()


READINGS = [
    # reply, official, strict
    ("Good.\n- Rating: 4, somewhat informative", 4, 4),
    ("RATING: 0", 0, 0),
    ("Rating: 6. I repeat: rating: 6", 6, 6),
    ("Rating: 3 or Rating: 4", None, None),
    ("Rating: 10", 1, None),
    ("Rating: 12", 1, None),
    ("Rating: 4.5", 4, None),
    ("Rating: 66", 6, None),
    ("Rating: 7", None, None),
    ("Rating: 5 out of 6, not Rating: 9", 5, None),
    ("underrating: 3", 3, None),
    ("Rating:5", None, None),
    ("Rating: **5**", None, None),
    ("**Rating**: 4", None, None),
    ("Rating:  5", None, None),
    ("Rating:\n5", None, None),
    ("", None, None),
    ("no idea", None, None),
]


@pytest.mark.parametrize(("reply", "official", "strict"), READINGS)
def test_readings(reply: str, official: int | None, strict: int | None) -> None:
    assert parse_official(reply) == official
    assert parse_strict(reply) == strict


@given(
    st.lists(
        st.sampled_from(["rating: ", "Rating: ", "RATING:", "0", "3", "6", "7", "12", ".", " ", "\n", "x"])
    )
)
def test_readings_against_a_twin(parts: list[str]) -> None:
    reply = "".join(parts)
    digits = {match for match in re.findall(r"rating: ([0-6])", reply.lower())}
    # findall does not see overlapping matches, and there are none: a digit never begins the word.
    assert parse_official(reply) == (int(digits.pop()) if len(digits) == 1 else None)
    strict = parse_strict(reply)
    if strict is not None:
        assert parse_official(reply) == strict


def test_records_are_verbatim_and_limited(data: Path) -> None:
    records = MMHal(data).records()
    assert len(records) == 96
    assert records[9].prompt == "What is 9?"
    assert records[9].image == "images/9_o.jpg"
    assert {record.max_new_tokens for record in records} == {256}
    assert [record.id for record in MMHal(data).records(limit=3)] == [0, 1, 2]
    assert BENCHMARKS["mmhal"] is MMHal


def test_the_prompt_is_filled_in_the_official_order(data: Path) -> None:
    judge = Scripted(lambda text: "Rating: 5")
    MMHal(data, judge=judge).score([Response(2, "Three {} <cats> {0}\ud800")])
    assert judge.prompts == [
        "Be the judge: {{fair}}.\nC Cat, Tree\nQ What is 2?\nA It is 2.\nR Three {} <cats> {0}?\n"
    ]


def test_scores_by_hand(data: Path) -> None:
    # Types repeat every eight: give type 0 a 6, type 1 nothing readable, type 2 a 10, the rest a 2.
    said = {0: "Rating: 6", 1: "hm", 2: "Rating: 10"}
    responses = [Response(i, said.get(i % 8, "Rating: 2")) for i in reversed(range(96))]
    items, summary = MMHal(data, judge=Scripted(echo)).score(responses, ids=range(96))
    assert [item.id for item in items] == list(range(96))
    metrics = {name: metric.value for name, metric in summary.metrics.items()}
    assert metrics["score"] == pytest.approx((6 + 0 + 0 + 5 * 2) / 8)
    assert metrics["hallucination_rate"] == pytest.approx(100 * 7 / 8)
    assert metrics["unparsed"] == pytest.approx(25)
    assert metrics["score_attribute"] == 6
    assert metrics["score_comparison"] == 0
    assert summary.official["average_score"] == round((6 + 0 + 1 + 10) / 8, 2)
    assert summary.official["hallucination_rate"] == 0.88
    assert summary.official["score_comparison"] == 1
    assert summary.scorer["unparsed"] == 24
    assert summary.scorer["unparsed_official"] == 12
    assert summary.scorer["judge"] == {"model": "scripted"}
    score = summary.metrics["score"]
    assert score.low is not None
    assert score.high is not None
    assert score.low < metrics["score"] < score.high
    assert MMHal(data).summarize(items[::-1]).metrics == summary.metrics


def test_the_official_rules_can_give_the_metrics(data: Path) -> None:
    _, summary = MMHal(data, judge=Scripted(echo), rules="official").score([Response(0, "Rating: 10")])
    assert summary.metrics["score"].value == 1
    assert summary.scorer["rules"] == "official"
    assert summary.official == {}


def test_a_whole_evaluation_over_http_resumes_for_free(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)

    def script(body: dict[str, Any], number: int) -> Any:
        if number % 7 == 0:
            return (429, {"retry-after": "0"}, b"{}") if number % 2 else (500, {}, b"")
        return completion(echo(question_of(body)))

    responses = [Response(i, f"Rating: {i % 7}") for i in range(96)]
    with JudgeServer(script) as server, ChatJudge(url=server.url) as endpoint:
        # A first run that stopped half way leaves its verdicts behind.
        MMHal(data, judge=CachedJudge(endpoint, tmp_path / "verdicts")).score(responses[:40])
        assert len(list((tmp_path / "verdicts").rglob("*.json"))) == 40
        first = [question_of(body) for body in server.requests]
        cached = CachedJudge(endpoint, tmp_path / "verdicts")
        _, summary = MMHal(data, judge=cached).score(responses)
        assert not {question_of(body) for body in server.requests[len(first) :]} & set(first)
        sent = len(server.requests)
        _, again = MMHal(data, judge=CachedJudge(endpoint, tmp_path / "verdicts")).score(responses)
        assert len(server.requests) == sent
    assert again == summary
    assert summary.metrics["score"].value == pytest.approx(sum(i % 7 for i in range(96)) / 96)


def test_no_responses_are_a_defined_result(data: Path) -> None:
    items, summary = MMHal(data, judge=Scripted(echo)).score([])
    assert items == []
    assert summary.n == 0
    assert summary.metrics["score"].value is None


@pytest.mark.parametrize("count", [95, 97])
def test_another_number_of_records_is_refused(data: Path, count: int) -> None:
    write_json(data / "response_template.json", [{}] * count)
    with pytest.raises(InputError, match="96"):
        MMHal(data).records()


def test_errors_name_what_to_do(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="data mmhal"):
        MMHal(tmp_path / "nowhere").records()
    with pytest.raises(InputError, match="judge"):
        MMHal(data).score([Response(0, "x")])
    with pytest.raises(InputError, match="id '0'"):
        MMHal(data, judge=Scripted(echo)).score([Response("0", "x")])
    with pytest.raises(InputError, match="twice"):
        MMHal(data, judge=Scripted(echo)).score([Response(0, "x"), Response(0, "y")])
    with pytest.raises(InputError, match="loose"):
        MMHal(data, rules="loose")  # type: ignore[arg-type]
    write_text(data / "eval_gpt4.py", "template = 'only {} and {}'")
    with pytest.raises(InputError, match="places"):
        MMHal(data, judge=Scripted(echo)).score([Response(0, "x")])
    write_text(data / "eval_gpt4.py", "def f(:")
    with pytest.raises(InputError, match="Python"):
        MMHal(data, judge=Scripted(echo)).score([Response(0, "x")])
    (data / "eval_gpt4.py").unlink()
    with pytest.raises(InputError, match="prompt"):
        MMHal(data, judge=Scripted(echo)).score([Response(0, "x")])
    rows = [{"question": "?"}] * 96
    write_json(data / "response_template.json", rows)
    with pytest.raises(InputError, match="record 0"):
        MMHal(data).records()


@pytest.mark.parametrize("swapped", ["question", "image_src"])
def test_the_official_form_in_another_order_is_refused(data: Path, tmp_path: Path, swapped: str) -> None:
    rows = [row | {"model_answer": "a"} for row in read_json(data / "response_template.json")]
    benchmark = MMHal(data, judge=Scripted(lambda _: "Rating: 6"))
    write_json(tmp_path / "said.json", rows)
    assert score(benchmark, read_sources([tmp_path / "said.json"], reader=MMHal.read_responses))[1].n == 96
    rows[3][swapped], rows[4][swapped] = rows[4][swapped], rows[3][swapped]
    write_json(tmp_path / "said.json", rows)
    with pytest.raises(InputError, match="id 3"):
        score(benchmark, read_sources([tmp_path / "said.json"], reader=MMHal.read_responses))


def test_json_lines_are_read_whatever_the_files_name(tmp_path: Path) -> None:
    for name in ("said.json", "said.jsonl"):
        write_text(tmp_path / name, '{"id": 0, "response": "a"}\n{"id": 1, "response": "b"}\n')
        assert [row.text for row in MMHal.read_responses(tmp_path / name)] == ["a", "b"]
    with pytest.raises(InputError, match="exist"):
        MMHal.read_responses(tmp_path / "gone.json")


def test_a_prompt_that_cannot_be_read_is_named(data: Path, tmp_path: Path) -> None:
    write_text(tmp_path / "null.py", "\0")
    for path in (tmp_path, tmp_path / "gone.txt", tmp_path / "null.py"):
        with pytest.raises(InputError, match=str(path)):
            MMHal(data, judge=Scripted(echo), prompt=path).score([Response(0, "x")])
