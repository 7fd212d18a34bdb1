from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from judge_server import Answer, JudgeServer, completion, question_of
from reweigh.errors import InputError
from reweigh.files.artifacts import write_text
from reweigh.lab.tasks.judge import CachedJudge, ChatJudge, JudgeError, Request, ask_all

OPTIONS: dict[str, Any] = {"timeout": 20, "key_variable": "TEST_KEY"}


@pytest.fixture(autouse=True)
def _without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI's client waits half a second and more between attempts."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


def first(*troubles: Answer, then: str = "Rating: 4") -> Any:
    """A script that plays the troubles one after the other and then answers."""
    return lambda body, number: troubles[number] if number < len(troubles) else completion(then)


def test_a_question_travels_as_the_protocol_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", " secret ")
    with (
        JudgeServer(first(then="0.5")) as server,
        ChatJudge("m", url=server.url + "/", **OPTIONS) as judge,
    ):
        assert judge.ask(Request("how good?", temperature=0.5, max_tokens=3)) == "0.5"
        assert server.requests == [
            {
                "path": "/v1/chat/completions",
                "model": "m",
                "messages": [{"role": "user", "content": "how good?"}],
                "temperature": 0.5,
                "max_tokens": 3,
            }
        ]
        assert server.headers[0]["authorization"] == "Bearer secret"
        assert judge.describe() == {"model": "m", "base_url": server.url}


def test_a_server_without_key_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    with JudgeServer(first()) as server, ChatJudge(url=server.url, **OPTIONS) as judge:
        judge.ask(Request("x"))
        assert "authorization" not in server.headers[0]
        assert "max_tokens" not in server.requests[0]
        assert server.requests[0]["temperature"] == 0.0
        assert server.requests[0]["model"] == "gpt-4.1-mini-2025-04-14"


GARBAGE = (200, {}, b"<html>welcome</html>")
NO_CHOICE = (200, {}, b'{"choices": []}')
WRONG_TYPE = (200, {}, b'{"choices": [{"message": {"content": 7}}]}')


@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"retry-after": "0"}, b"{}"),
        (500, {}, b"oops"),
        (503, {}, b'{"error": "plain text"}'),
        GARBAGE,
        NO_CHOICE,
        WRONG_TYPE,
        "cut",
        "half",
        "slow",
    ],
)
def test_passing_troubles_are_tried_again(trouble: Answer) -> None:
    impatient = OPTIONS | ({"timeout": 1} if trouble in ("slow", "drip") else {})
    with (
        JudgeServer(first(trouble, trouble)) as server,
        ChatJudge(url=server.url, **impatient) as judge,
    ):
        assert judge.ask(Request("x")) == "Rating: 4"
        assert len(server.requests) == 3


def test_giving_up_names_the_last_trouble() -> None:
    with (
        JudgeServer(lambda body, number: (500, {}, b"kitchen on fire")) as server,
        ChatJudge(url=server.url, attempts=3, **OPTIONS) as judge,
    ):
        with pytest.raises(JudgeError, match="kitchen on fire"):
            judge.ask(Request("x"))
        assert len(server.requests) == 3


def test_nobody_listening_is_a_clear_error() -> None:
    with JudgeServer(first()) as server:
        url = server.url
    with (
        ChatJudge(url=url, attempts=2, **OPTIONS) as judge,
        pytest.raises(JudgeError, match="connection"),
    ):
        judge.ask(Request("x"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {}, b'{"error": {"message": "bad key"}}'), "key"),
        ((404, {}, b'{"error": {"message": "no such model"}}'), "name"),
        ((400, {}, b"[]"), "rejects"),
        ((400, {}, b"\xff{"), "rejects"),
        ((429, {"x-should-retry": "false"}, b'{"error": {"message": "pay"}}'), "quota"),
    ],
)
def test_lasting_refusals_are_raised_at_once(
    answer: Answer, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "very-secret")
    with JudgeServer(first(answer)) as server, ChatJudge("m", url=server.url, **OPTIONS) as judge:
        with pytest.raises(JudgeError) as caught:
            judge.ask(Request("x"))
        assert said in str(caught.value)
        assert "very-secret" not in str(caught.value)
        assert len(server.requests) == 1


def test_a_wait_of_more_than_two_minutes_is_refused() -> None:
    with (
        JudgeServer(first((429, {"retry-after": "3600"}, b"{}"))) as server,
        ChatJudge(url=server.url, **OPTIONS) as judge,
        pytest.raises(JudgeError, match="run the same command again later"),
    ):
        judge.ask(Request("x"))


def test_a_refusal_without_text_is_an_empty_reply() -> None:
    with (
        JudgeServer(lambda body, number: completion(None)) as server,
        ChatJudge(url=server.url, **OPTIONS) as judge,
    ):
        assert judge.ask(Request("x")) == ""


def test_many_questions_keep_order_and_bound() -> None:
    def script(body: dict[str, Any], number: int) -> Answer:
        time.sleep(0.01)
        return (500, {}, b"") if number % 5 == 0 else completion("re: " + question_of(body))

    seen: list[int] = []
    with JudgeServer(script) as server, ChatJudge(url=server.url, **OPTIONS) as judge:
        tasks = [lambda i=i: judge.ask(Request(f"q{i}")) for i in range(24)]
        replies = ask_all(tasks, concurrency=3, advance=lambda: seen.append(1))
        assert replies == [f"re: q{i}" for i in range(24)]
        assert 2 <= server.most_at_once <= 3
        assert len(seen) == 24


def test_the_first_failure_stops_what_has_not_begun() -> None:
    begun: list[int] = []

    def task(i: int) -> int:
        begun.append(i)
        if i == 1:
            raise JudgeError("no")
        time.sleep(0.02)
        return i

    with pytest.raises(JudgeError, match="no"):
        ask_all([lambda i=i: task(i) for i in range(200)], concurrency=2)
    assert len(begun) < 50


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "8"])
def test_concurrency_is_a_whole_number(concurrency: Any) -> None:
    with pytest.raises(InputError, match="concurrency"):
        ask_all([lambda: 1] * 3, concurrency=concurrency)


STOPPED = """
import time
from reweigh.lab.tasks.judge import JudgeError, ask_all

def failing():
    time.sleep(0.2)
    raise JudgeError("no")

try:
    ask_all([lambda: time.sleep(600), failing], concurrency=2)
except JudgeError:
    print("told")
"""


def test_a_question_under_way_does_not_keep_a_stopped_command_alive() -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("told\n", 0), done.stderr


def test_closing_ends_a_long_wait() -> None:
    failures: list[Exception] = []
    with JudgeServer(first()) as server:
        judge = ChatJudge(url=server.url, per_minute=0.1, **OPTIONS)
        judge.ask(Request("x"))

        def ask() -> None:
            try:
                judge.ask(Request("y"))
            except JudgeError as error:
                failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        judge.close()
        for thread in threads:
            thread.join(timeout=120)
    assert len(failures) == 3
    assert len(server.requests) == 1


def test_the_default_place_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        ChatJudge()
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
    with pytest.raises(InputError) as caught:
        ChatJudge()
    assert "schl" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"url": "localhost:80"}, {"attempts": 0}, {"per_minute": 0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ChatJudge(**{"url": "http://localhost", **wrong})


def test_starts_are_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def sleep(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return False

    with JudgeServer(first()) as server, ChatJudge(url=server.url, per_minute=30, **OPTIONS) as judge:
        monkeypatch.setattr(judge._pace._closed, "wait", sleep)
        monkeypatch.setattr("reweigh.lab.tasks.judge.time.monotonic", lambda: now)
        starts = []
        for _ in range(3):
            judge.ask(Request("x"))
            starts.append(now)
    assert starts == [100, 102, 104]


KEY = 'sk-"12345/secret+key'


@pytest.mark.parametrize("status", [401, 400, 429, 500, 200])
@pytest.mark.parametrize("in_json", [True, False])
def test_a_key_that_the_server_repeats_is_struck_out(
    monkeypatch: pytest.MonkeyPatch, status: int, in_json: bool
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)

    def script(body: Any, number: int) -> Answer:
        said = "x" * 280 + server.headers[-1]["authorization"]
        body = json.dumps({"error": {"message": said}}) if in_json else said
        return status, {"content-type": "text/plain"}, body.encode()

    with (
        JudgeServer(script) as server,
        ChatJudge(url=server.url, attempts=1, **OPTIONS) as judge,
        pytest.raises(JudgeError) as caught,
    ):
        judge.ask(Request("x"))
    chain, error = "", caught.value
    while error is not None:
        chain, error = chain + str(error), error.__cause__
    assert "xxx" in chain
    assert not any(part in chain for part in (KEY, "12345", "secret+key"))


def test_a_reply_with_the_key_is_kept_without_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    with (
        JudgeServer(lambda *_: completion(f"Rating: 4, {KEY}")) as server,
        ChatJudge(url=server.url, **OPTIONS) as judge,
    ):
        assert CachedJudge(judge, tmp_path).ask(Request("x")) == "Rating: 4, [redacted]"
    assert "12345" not in "".join(path.read_text() for path in tmp_path.rglob("*.json"))


def test_the_query_of_an_address_reaches_the_server_and_nobody_else(tmp_path: Path) -> None:
    def script(body: Any, number: int) -> Answer:
        if number:
            return 403, {}, f"{server.requests[-1]['path']} t0ken".encode()
        return completion("5")

    with JudgeServer(script) as server, ChatJudge(url=f"{server.url}?api-key=t0ken", **OPTIONS) as judge:
        cached = CachedJudge(judge, tmp_path)
        assert cached.ask(Request("x")) == "5"
        assert server.requests[0]["path"] == "/v1/chat/completions?api-key=t0ken"
        assert judge.describe()["base_url"] == server.url
        with pytest.raises(JudgeError, match="HTTP 403") as caught:
            judge.ask(Request("y"))
    kept = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert "t0ken" not in str(caught.value) + repr(judge.describe()) + kept


@pytest.mark.parametrize(
    "address",
    [
        "ftp://me:hunter2@host",
        "http://me:hunter2@host:port/v1",
        "me:hunter2@host",
        "http://me:hunter2@host/v1",
    ],
)
def test_a_wrong_address_is_refused_without_being_repeated(address: str) -> None:
    with pytest.raises(InputError, match="address") as caught:
        ChatJudge(url=address, **OPTIONS)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"content-encoding": "gzip"}, b"no gzip at all"),
        (200, {}, b"[" * 100_000),
        (200, {}, b'{"choices": ' + b"[" * 100_000),
        (500, {}, b"[" * 100_000),
        (200, {}, b"1" * 5000),
        (302, {"location": "/v1/chat/completions"}, b""),
        (429, {"retry-after": "Mon, 01 Jan 999999999 00:00:00 GMT"}, b""),
        (200, {}, b" " * (1 << 23)),
    ],
)
def test_bodies_from_nowhere_are_one_message(answer: Answer) -> None:
    with (
        JudgeServer(lambda *_: answer) as server,
        ChatJudge(url=server.url, attempts=1, **OPTIONS) as judge,
        pytest.raises(JudgeError),
    ):
        judge.ask(Request("x"))


class Counting:
    """A judge that answers with the number of questions put to it."""

    def __init__(self, model: str = "m", prefix: str = "") -> None:
        self.asked: list[Request] = []
        self.model = model
        self.prefix = prefix

    def describe(self) -> dict[str, Any]:
        return {"model": self.model}

    def ask(self, request: Request) -> str:
        self.asked.append(request)
        time.sleep(0.01)
        return f"{self.prefix}{len(self.asked)}"


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    questions = [Request(f"q{i}") for i in range(5)]
    first = Counting()
    replies = [CachedJudge(first, tmp_path).ask(question) for question in questions]
    second = Counting(prefix="other ")
    again = CachedJudge(second, tmp_path)
    assert [again.ask(question) for question in questions] == replies
    assert second.asked == []


def test_everything_that_can_change_a_verdict_is_in_the_key(tmp_path: Path) -> None:
    judge = Counting()
    cached = CachedJudge(judge, tmp_path)
    questions = [
        Request("q"),
        Request("q "),
        Request("q", temperature=0.5),
        Request("q", max_tokens=3),
        Request("q", sample=1),
    ]
    assert len({cached.ask(question) for question in questions}) == len(questions)
    other = CachedJudge(Counting(model="n", prefix="n"), tmp_path)
    assert other.ask(questions[0]) == "n1"


def test_equal_questions_at_once_are_asked_once(tmp_path: Path) -> None:
    judge = Counting()
    cached = CachedJudge(judge, tmp_path)
    barrier = threading.Barrier(4)

    def task() -> str:
        barrier.wait()
        return cached.ask(Request("same"))

    assert ask_all([task] * 4, concurrency=4) == ["1"] * 4
    assert len(judge.asked) == 1


def test_a_broken_file_is_asked_again_and_mended(tmp_path: Path) -> None:
    judge = Counting()
    cached = CachedJudge(judge, tmp_path)
    cached.ask(Request("q"))
    (path,) = tmp_path.rglob("*.json")
    for broken in ('{"reply": "1', "[]", '{"question": {}, "reply": "forged"}', '{"question": null}'):
        write_text(path, broken)
        asked = len(judge.asked)
        assert cached.ask(Request("q")) == str(asked + 1)
        assert cached.ask(Request("q")) == str(asked + 1)


def test_an_edited_verdict_is_not_used(tmp_path: Path) -> None:
    cached = CachedJudge(Counting(), tmp_path)
    cached.ask(Request("q"))
    (path,) = tmp_path.rglob("*.json")
    text = path.read_text()
    path.write_text(text.replace('"reply": "1"', '"reply": "6"'))
    assert path.read_text() != text
    assert cached.ask(Request("q")) == "2"


def test_a_whole_verdict_under_anothers_name_is_not_used(tmp_path: Path) -> None:
    cached = CachedJudge(Counting(), tmp_path)
    cached.ask(Request("one"))
    (first,) = tmp_path.rglob("*.json")
    cached.ask(Request("two"))
    (second,) = set(tmp_path.rglob("*.json")) - {first}
    second.write_bytes(first.read_bytes())
    assert cached.ask(Request("two")) == "3"
    assert cached.ask(Request("one")) == "1"


def test_a_reply_with_lone_surrogates_is_kept(tmp_path: Path) -> None:
    class Odd(Counting):
        def ask(self, request: Request) -> str:
            return "Rating: 4 \ud800"

    cached = CachedJudge(Odd(), tmp_path)
    reply = cached.ask(Request("q"))
    assert reply.startswith("Rating: 4 ")
    assert CachedJudge(Counting(), tmp_path).ask(Request("q")) == reply
