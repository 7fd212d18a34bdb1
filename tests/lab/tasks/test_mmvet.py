from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.files.artifacts import write_json, write_text
from reweigh.lab.tasks.base import BENCHMARKS, Response
from reweigh.lab.tasks.judge import Request
from reweigh.lab.tasks.mmvet import MMVet, parse_official, parse_strict

PROGRAM = '''
prompt = """Grade it.
Q | A | P | grade
"""
def ask():
    return prompt + "\\nTell the grade (digit): "
'''
KINDS = [["rec"], ["ocr"], ["rec", "ocr"], ["ocr", "rec"], ["math", "ocr", "spat"]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = {
        f"v1_{i}": {
            "imagename": f"v1_{i // 2}.png",
            "question": f"What is {i}?",
            "answer": "one<AND>two<OR>three",
            "capability": KINDS[i % len(KINDS)],
        }
        for i in range(20)
    }
    write_json(tmp_path / "mm-vet.json", rows)
    # The file's own order decides; canonical JSON sorts the keys, so v1_10 comes before v1_2.
    write_text(tmp_path / "mm-vet_evaluator.py", PROGRAM)
    return tmp_path


class Scripted:
    """A judge that answers by what was predicted and how often it was asked."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.requests: list[Request] = []
        self.lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        return {"model": "scripted"}

    def ask(self, request: Request) -> str:
        with self.lock:
            self.requests.append(request)
        text = request.text
        return str(self.reply(text.split(" | ")[-2], request))


def echo(prediction: str, request: Request) -> str:
    return prediction


READINGS = [
    # reply, official, strict
    ("0.0", 0.0, 0.0),
    ("0.7", 0.7, 0.7),
    ("1.0", 1.0, 1.0),
    ("1", 1.0, 1.0),
    ("0.85", 0.85, None),
    (".5", 0.5, 0.5),
    ("0.50", 0.5, 0.5),
    ("1e-1", 0.1, None),
    ("+0.4", 0.4, None),
    ("０.５", 0.5, None),
    ("0.5 because", 0.5, None),
    ("0.9\nBecause", None, None),
    (" 0.7", None, 0.7),
    ("0.7\n", 0.7, 0.7),
    ("0.5.", None, None),
    ("1.1", None, None),
    ("-0.1", None, None),
    ("inf", None, None),
    ("", None, None),
    (".", None, None),
    ("0..5", None, None),
    ("0_1", 1.0, None),
]


@pytest.mark.parametrize(("reply", "official", "strict"), READINGS)
def test_readings(reply: str, official: float | None, strict: float | None) -> None:
    assert parse_official(reply) == official
    assert parse_strict(reply) == strict


def test_the_official_reading_accepts_nan() -> None:
    value = parse_official("nan")
    assert value is not None
    assert math.isnan(value)
    assert parse_strict("nan") is None


@given(st.text(st.sampled_from("0123456789. +-e\n"), max_size=6))
def test_a_strict_grade_is_one_of_eleven(reply: str) -> None:
    grades = {f"{i / 10}": i / 10 for i in range(11)}
    value = parse_strict(reply)
    if reply.strip() in grades:
        assert value == grades[reply.strip()]
    assert value is None or value in grades.values()


def test_records(data: Path) -> None:
    records = MMVet(data).records()
    assert len(records) == 20
    by_id = {record.id: record for record in records}
    assert by_id["v1_3"].prompt == "What is 3?"
    assert by_id["v1_3"].image == "images/v1_1.png"
    assert by_id["v1_3"].max_new_tokens == 1024
    assert len(MMVet(data).records(limit=2)) == 2
    assert BENCHMARKS["mmvet"] is MMVet


def test_the_zip_unpacked_as_it_is_works_too(data: Path, tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    data.joinpath("mm-vet.json").rename(tmp_path / "mm-vet-file")
    (tmp_path / "outer" / "mm-vet").mkdir()
    (tmp_path / "mm-vet-file").rename(tmp_path / "outer" / "mm-vet" / "mm-vet.json")
    assert MMVet(tmp_path / "outer").records()[0].image == "mm-vet/images/v1_0.png"


def test_the_question_is_a_row_to_complete(data: Path) -> None:
    judge = Scripted(lambda prediction, request: "0.5")
    MMVet(data, judge=judge).score([Response("v1_0", "a | b\nc")])
    (request,) = judge.requests
    assert request.text == (
        "Grade it.\nQ | A | P | grade\n\nWhat is 0? | one <AND> two <OR> three | a | b\nc | "
    )
    assert request.max_tokens == 3
    assert request.temperature == 0


def score_by_hand(grades: dict[str, float]) -> dict[str, float]:
    """Means over the made-up questions, written without the package."""
    members: dict[str, list[float]] = {"total": list(grades.values())}
    for identity, grade in grades.items():
        kinds = KINDS[int(identity[3:]) % len(KINDS)]
        for kind in kinds:
            members.setdefault(kind, []).append(grade)
        order = ["rec", "ocr", "know", "gen", "spat", "math"]
        members.setdefault("exactly_" + "+".join(sorted(kinds, key=order.index)), []).append(grade)
    return {name: 100 * sum(values) / len(values) for name, values in members.items()}


@given(st.lists(st.integers(0, 10), min_size=20, max_size=20))
def test_figures_against_a_twin(tmp_path_factory: pytest.TempPathFactory, tenths: list[int]) -> None:
    folder = tmp_path_factory.getbasetemp() / "mmvet-twin"
    if not folder.exists():
        folder.mkdir()
        rows = {
            f"v1_{i}": {
                "imagename": "x.png",
                "question": "?",
                "answer": "!",
                "capability": KINDS[i % len(KINDS)],
            }
            for i in range(20)
        }
        write_json(folder / "mm-vet.json", rows)
        write_text(folder / "mm-vet_evaluator.py", PROGRAM)
    grades = {f"v1_{i}": tenth / 10 for i, tenth in enumerate(tenths)}
    bench = MMVet(folder, judge=Scripted(echo), rules="official")
    items, summary = bench.score([Response(identity, str(grade)) for identity, grade in grades.items()])
    expected = score_by_hand(grades)
    for name, value in expected.items():
        assert summary.metrics[name].value == pytest.approx(value)
        assert summary.official[name] == pytest.approx(value, abs=0.05 + 1e-9)
    assert summary.official["std"] == 0
    assert summary.metrics["know"].value is None
    assert bench.summarize(items[::-1]).official == summary.official


def test_official_rules_ask_again_hotter_and_read_five(data: Path) -> None:
    judge = Scripted(lambda prediction, request: "what?")
    items, summary = MMVet(data, judge=judge, rules="official", concurrency=1).score([Response("v1_0", "x")])
    assert [request.temperature for request in judge.requests] == [0.0, 0.0, 0.5, 1.0, 1.5]
    texts = [request.text for request in judge.requests]
    assert all(text == texts[0] + "\nTell the grade (digit): " for text in texts[1:])
    assert len({request.sample for request in judge.requests}) == 5
    assert summary.metrics["total"].value == 0
    assert summary.scorer["unparsed"] == 1
    assert items[0].details["parsed"] is False


def test_the_first_readable_repeat_counts(data: Path) -> None:
    judge = Scripted(lambda prediction, request: "0.4" if request.temperature == 0.5 else "?")
    items, _ = MMVet(data, judge=judge, rules="official").score([Response("v1_0", "x")])
    assert items[0].details["score"] == 0.4
    assert items[0].details["replies"] == [["?", "?", "0.4"]]


def test_strict_rules_ask_once(data: Path) -> None:
    judge = Scripted(lambda prediction, request: "0.85")
    _, summary = MMVet(data, judge=judge).score([Response("v1_0", "x")])
    assert len(judge.requests) == 1
    assert summary.metrics["total"].value == 0
    assert summary.metrics["unparsed"].value == 100
    assert summary.official == {}


def test_runs_are_averaged_and_their_spread_given(data: Path) -> None:
    judge = Scripted(lambda prediction, request: "1.0" if request.sample else "0.5")
    bench = MMVet(data, judge=judge, rules="official", runs=2)
    _, summary = bench.score([Response(f"v1_{i}", "x") for i in range(20)])
    assert summary.metrics["total"].value == pytest.approx(75)
    assert summary.official["std"] == round(float(np.std([50, 100])), 1)
    assert len({request.sample for request in judge.requests}) == 2


def test_one_nan_grade_leaves_its_figures_undefined(data: Path) -> None:
    responses = [Response(f"v1_{i}", "nan" if i == 0 else "0.5") for i in range(20)]
    items, summary = MMVet(data, judge=Scripted(echo), rules="official").score(responses)
    assert summary.metrics["total"].value is None
    assert summary.metrics["rec"].value is None
    assert summary.metrics["math"].value == pytest.approx(50)
    assert summary.official["total"] is None
    assert summary.official["exactly_ocr"] == 50
    assert items[0].details["score"] is None


def test_a_half_is_rounded_as_numpy_does(data: Path) -> None:
    # 20 grades that sum to 8.15: 40.75 ends on a half, which Python's round and NumPy's treat apart.
    grades = ["0.4"] * 19 + ["0.55"]
    _, summary = MMVet(data, judge=Scripted(echo), rules="official").score(
        [Response(record.id, grade) for record, grade in zip(MMVet(data).records(), grades, strict=True)]
    )
    running = 0.0
    for grade in grades:
        running += float(grade)
    assert summary.official["total"] == round(np.float64(running / 20 * 100), 1)


def test_errors_name_what_to_do(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="data mmvet"):
        MMVet(tmp_path / "nowhere").records()
    with pytest.raises(InputError, match="judge"):
        MMVet(data).score([])
    with pytest.raises(InputError, match="v1_99"):
        MMVet(data, judge=Scripted(echo)).score([Response("v1_99", "x")])
    with pytest.raises(InputError, match="response"):
        MMVet(data, judge=Scripted(echo)).score([Response("v1_1", "0.1")], ids=["v1_1", "v1_2"])
    with pytest.raises(InputError, match="rules"):
        MMVet(data, rules="loose")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="runs"):
        MMVet(data, runs=0)
    write_json(data / "mm-vet.json", {"v1_0": {"question": "?"}})
    with pytest.raises(InputError, match="v1_0"):
        MMVet(data).records()


def test_a_text_prompt_uses_our_own_suffix(data: Path) -> None:
    write_text(data / "mine.txt", "Grade:")
    judge = Scripted(lambda prediction, request: "?")
    MMVet(data, judge=judge, rules="official", prompt=data / "mine.txt").score([Response("v1_0", "x")])
    texts = [request.text for request in judge.requests]
    assert texts[0].startswith("Grade:\nWhat is 0? | ")
    assert texts[1] == texts[0] + "\nAnswer with the number alone: "


def test_no_responses_are_a_defined_result(data: Path) -> None:
    items, summary = MMVet(data, judge=Scripted(echo)).score([])
    assert (items, summary.n, summary.metrics["total"].value) == ([], 0, None)
