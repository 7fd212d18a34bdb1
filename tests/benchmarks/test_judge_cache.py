from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from reweigh.benchmarks.judge.protocol import CachedJudge, Request, ask_all
from reweigh.files.artifacts import write_text


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
