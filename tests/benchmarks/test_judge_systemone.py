"""The client of `/v1/systemone` against a stand-in server that answers well, badly, late or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from judge_server import Answer, JudgeServer, completion, decision, likely
from reweigh.benchmarks.judge import endpoint as transport
from reweigh.benchmarks.judge.kinds import ChatEndpoint, JudgeSettings, SystemOne
from reweigh.benchmarks.judge.protocol import CachedJudge, Distribution, JudgeError, Request, ScaleQuestion
from reweigh.errors import InputError

OPTIONS: dict[str, Any] = {"first_wait": 0.01, "timeout": 20}
QUESTION = ScaleQuestion(state="a text", instructions="how good?", levels=("bad", "so so", "good"))
GOOD = {"0": 0.125, "1": 0.25, "2": 0.625}


def first(*troubles: Answer) -> Any:
    return lambda body, number: troubles[number] if number < len(troubles) else decision(GOOD)


def test_a_question_travels_as_the_route_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "somebody-elses")
    with JudgeServer(first()) as server, SystemOne("m", base_url=server.url, **OPTIONS) as judge:
        assert judge.ask(QUESTION) == Distribution((0.125, 0.25, 0.625))
        asked = {"type": "score", "instructions": "how good?", "criteria": ["bad", "so so", "good"]}
        assert server.requests == [
            {"path": "/v1/systemone", "model": "m", "state": "a text", "questions": {"rating": asked}}
        ]
        assert "authorization" not in server.headers[0], "a key goes only where it was meant for"
        assert judge.describe() == {"kind": "systemone", "model": "m", "base_url": server.url}


def test_a_key_is_sent_and_never_revealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "very-secret")

    def script(body: Any, number: int) -> Answer:
        return decision(GOOD) if number == 0 else decision(GOOD, model="very-secret")

    with (
        JudgeServer(script) as server,
        SystemOne("m", base_url=server.url, key_variable="TEST_KEY", **OPTIONS) as judge,
    ):
        judge.ask(QUESTION)
        assert server.headers[0]["authorization"] == "Bearer very-secret"
        with pytest.raises(JudgeError, match="runs") as caught:
            judge.ask(QUESTION)
        assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"retry-after": "0"}, b"{}"),
        (500, {}, b"Internal Server Error"),
        (503, {}, b'{"error": "loading"}'),
        (200, {}, b""),
        (200, {}, b'{"answers": {"rating": '),
        "cut",
        "half",
        "slow",
        "drip",
    ],
)
def test_passing_troubles_are_tried_again(trouble: Answer) -> None:
    impatient = OPTIONS | ({"timeout": 1} if trouble in ("slow", "drip") else {})
    with (
        JudgeServer(first(trouble, trouble)) as server,
        SystemOne("m", base_url=server.url, **impatient) as judge,
    ):
        assert judge.ask(QUESTION).level == 2
        assert len(server.requests) == 3


def test_tries_are_bounded() -> None:
    with (
        JudgeServer(lambda *_: (500, {}, b"no")) as server,
        SystemOne("m", base_url=server.url, attempts=3, **OPTIONS) as judge,
    ):
        with pytest.raises(JudgeError, match="3 attempts"):
            judge.ask(QUESTION)
        assert len(server.requests) == 3


LASTING: list[tuple[Answer, str]] = [
    ((404, {}, b'{"detail": "Not Found"}'), "POST .*/v1/systemone"),
    ((405, {}, b""), "POST"),
    (
        (400, {}, b"{\"detail\": \"Server is pinned to 'n'; requested 'm'.\"}"),
        "started",
    ),
    (
        (400, {}, b'{"detail": "The labels of question \'rating\' are not single tokens."}'),
        "--decision-config",
    ),
    ((400, {}, b'{"detail": "The selected model does not support image input."}'), "accepts images"),
    ((422, {}, b'{"detail": [{"loc": ["body", "state"], "msg": "bad"}]}'), r"HTTP 422 \(body.state: bad\)"),
    ((422, {}, b'{"detail": [7]}'), "HTTP 422"),
    ((401, {}, b'{"error": {"message": "who?"}}'), "key"),
    (decision(GOOD, model="other"), "other"),
    (decision({"0": 0.5, "1": 0.5}), "0 to 2"),
    (decision(likely(1)), "0 to 2"),
    (decision({"0": float("nan"), "1": 0.5, "2": 0.5}), "nan"),
    (decision({"0": 0.5, "1": 0.5, "2": 0.5}), "sum to 1.5"),
    (decision(None), "3 levels"),
    ((200, {}, b"[]"), "answers"),
    ((200, {}, b"{}"), "answers"),
    ((200, {}, b'{"answers": []}'), "answers"),
    ((200, {}, b'{"answers": {}}'), "score"),
    ((200, {}, b'{"answers": {"rating": {"type": "noul", "noul": 1}}}'), "score"),
    (completion("Rating: 4"), "answers"),
]


@pytest.mark.parametrize(("answer", "said"), LASTING)
def test_what_will_not_mend_is_reported_at_once(answer: Answer, said: str) -> None:
    with JudgeServer(lambda *_: answer) as server, SystemOne("m", base_url=server.url, **OPTIONS) as judge:
        with pytest.raises(JudgeError, match=said) as caught:
            judge.ask(QUESTION)
        assert len(server.requests) == 1
        assert caught.value.hint


def test_a_reply_without_end_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LARGEST_REPLY", 1000)
    flood = (200, {}, b" " * 2000)
    with JudgeServer(lambda *_: flood) as server:
        with (
            SystemOne("m", base_url=server.url, **OPTIONS) as judge,
            pytest.raises(JudgeError, match="1,000"),
        ):
            judge.ask(QUESTION)
        with (
            ChatEndpoint("m", base_url=server.url, **OPTIONS) as chat,
            pytest.raises(JudgeError, match="1,000"),
        ):
            chat.ask(Request("x"))


def test_nobody_listening_is_a_clear_error() -> None:
    with JudgeServer(first()) as server:
        url = server.url
    with (
        SystemOne("m", base_url=url, attempts=2, **OPTIONS) as judge,
        pytest.raises(JudgeError, match="connection"),
    ):
        judge.ask(QUESTION)


def test_a_weights_file_is_known_by_its_repository() -> None:
    with (
        JudgeServer(lambda *_: decision(GOOD)) as server,
        SystemOne("m:weights.gguf", base_url=server.url, **OPTIONS) as judge,
    ):
        assert judge.ask(QUESTION).level == 2


def yes(*values: Any) -> Answer:
    answers = {str(number): {"type": "noul", "noul": value} for number, value in enumerate(values)}
    return 200, {}, json.dumps({"model": "m", "answers": answers}).encode()


def test_yes_or_no_about_a_picture() -> None:
    with (
        JudgeServer(lambda *_: yes(0.25, 1)) as server,
        SystemOne("m", base_url=server.url, **OPTIONS) as judge,
    ):
        assert judge.affirm("Look.", ["a dog?", "a cat?"], ["data:image/png;base64,AA=="]) == [0.25, 1]
        (asked,) = server.requests
        assert asked["images"] == ["data:image/png;base64,AA=="]
        assert asked["questions"]["1"] == {"type": "noul", "instructions": "a cat?"}
        with pytest.raises(InputError, match="65 questions"):
            judge.affirm("", ["?"] * 65)
        with pytest.raises(InputError, match="5 images"):
            judge.affirm("", ["?"], ["x"] * 5)
        with pytest.raises(InputError, match="0 questions"):
            judge.affirm("", [])


@pytest.mark.parametrize("value", [float("nan"), -0.1, 1.5, None, "yes", True])
def test_a_yes_that_is_not_a_probability_is_refused(value: Any) -> None:
    with (
        JudgeServer(lambda *_: yes(value)) as server,
        SystemOne("m", base_url=server.url, role="verifier", **OPTIONS) as judge,
        pytest.raises(JudgeError, match="probability"),
    ):
        judge.affirm("", ["a dog?"])


def test_verdicts_are_kept_by_content_and_by_kind_of_judge(tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Answer:
        return completion("text") if "messages" in body else decision(GOOD)

    with JudgeServer(script) as server:
        judge = SystemOne("m", base_url=server.url, **OPTIONS)
        rater = CachedJudge(judge, tmp_path)
        assert rater.ask(QUESTION) == rater.ask(QUESTION) == judge.ask(QUESTION)
        assert len(server.requests) == 2
        other = ScaleQuestion(state="a text", instructions="how good?", levels=("bad", "so so", "fine"))
        rater.ask(other)
        assert len(server.requests) == 3
        chat = CachedJudge(ChatEndpoint("m", base_url=server.url, **OPTIONS), tmp_path)
        assert chat.ask(Request("a text")) == "text"
        assert len(server.requests) == 4
        judge.close()
        chat.close()
    assert len(list(tmp_path.rglob("*.json"))) == 3


def test_a_damaged_verdict_is_asked_again(tmp_path: Path) -> None:
    with JudgeServer(first()) as server, SystemOne("m", base_url=server.url, **OPTIONS) as judge:
        rater = CachedJudge(judge, tmp_path)
        rater.ask(QUESTION)
        (path,) = tmp_path.rglob("*.json")
        whole = path.read_text()
        for damaged in (
            whole.replace("0.625", "0.425"),
            whole[: len(whole) // 2],
            "[]",
            "",
            whole.replace("m", "n"),
        ):
            assert damaged != whole
            path.write_text(damaged)
            asked = len(server.requests)
            assert rater.ask(QUESTION).level == 2
            assert len(server.requests) == asked + 1
            assert path.read_text() == whole


def test_settings_say_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path))
    with pytest.raises(InputError, match="did you mean systemone"):
        JudgeSettings(kind="system-one")
    with pytest.raises(InputError, match="--judge-option model="):
        JudgeSettings(kind="systemone")
    with pytest.raises(InputError, match="rules"):
        JudgeSettings(kind="systemone", model="m", rules="strict")
    with pytest.raises(InputError, match="timeout"):
        JudgeSettings(kind="systemone", model="m", timeout=0).open()
    with pytest.raises(InputError, match="timeout"):
        JudgeSettings(kind="systemone", model="m", timeout=True).open()
    rater = JudgeSettings(kind="systemone", model="m").open()
    assert isinstance(rater, CachedJudge)
    assert rater.describe()["base_url"] == "http://localhost:8000/v1"
    rater.close()
