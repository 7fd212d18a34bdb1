from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reweigh.errors import InputError, UnknownNameError
from reweigh.lab.estimate import Estimate
from reweigh.lab.tasks.base import (
    BENCHMARKS,
    Id,
    Item,
    Question,
    Response,
    Summary,
    check_questions,
    check_responses,
    read_responses,
)

ROWS = [{"id": 1, "response": "a dog"}, {"id": "x", "response": ""}]
READ = [Response(1, "a dog"), Response("x", "")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.jsonl", "\n".join(map(json.dumps, ROWS)) + "\n"),
        ("r.jsonl", "\n\n".join(map(json.dumps, ROWS))),  # blank lines, and no newline at the end
        ("r.jsonl", "\ufeff" + "\r\n".join(map(json.dumps, ROWS))),
        ("r.json", json.dumps(ROWS)),
        ("r.json", "\n".join(map(json.dumps, ROWS))),  # lines under the other ending, as POPE has them
        ("r.json", json.dumps([{"image_id": 1, "caption": "a dog"}, {"question_id": "x", "text": ""}])),
    ],
)
def test_responses_in_every_accepted_form(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_responses(tmp_path / name) == READ


def test_map_of_id_to_text_and_single_object(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"v1_0": "a", "v1_1": "b"}')
    assert read_responses(path) == [Response("v1_0", "a"), Response("v1_1", "b")]
    path.write_text('{"overall": {}, "imgToEval": {"3": {"image_id": 3, "caption": "b", "CIDEr": 0.1}}}')
    assert read_responses(path) == [Response(3, "b")]
    path.write_text('{"id": 3, "response": "b"}')
    assert read_responses(path) == [Response(3, "b")]


def test_chosen_keys_win(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": 1, "response": "a", "nr": 7, "said": "b"}\n')
    assert read_responses(path, id_key="nr", text_key="said") == [Response(7, "b")]
    with pytest.raises(InputError, match="absent"):
        read_responses(path, id_key="absent")


@pytest.mark.parametrize("name", ["r.json", "r.jsonl"])
def test_empty_file_holds_no_responses(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(" \n")
    assert read_responses(tmp_path / name) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.jsonl", '{"id": 1, "response": "a"}\n{"id": 2, "resp', "JSON"),
        ("r.jsonl", '{"id": 1, "response": null}', "null"),
        ("r.jsonl", '{"id": 1, "response": ["a"]}', "list"),
        ("r.jsonl", '{"id": 1.5, "response": "a"}', "1.5"),
        ("r.jsonl", '{"id": true, "response": "a"}', "True"),
        ("r.jsonl", '{"response": "a"}', "'response'"),
        ("r.jsonl", '{"id": 1}', "'id'"),
        (
            "r.jsonl",
            '{"id": 1, "answer": "yes", "text": "no"}',
            "'answer'",
        ),
        (
            "r.jsonl",
            '{"id": 1, "image_id": 1, "text": "no"}',
            "'image_id'",
        ),
        ("r.jsonl", '{"id": 1, "response": "a"}\n' + "[" * 99_999, "JSON"),
        ("r.json", "[" * 99_999, "JSON"),
        ("r.jsonl", "[1]", "object"),
        ("r.json", "[1", "JSON"),
        ("r.json", "3", "number"),
        ("r.json", '[{"id": 1, "response": 2}]', "response"),
    ],
)
def test_wrong_files_name_the_row(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_responses(tmp_path / name)


def test_an_option_decides_between_several_keys(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": 7, "image_id": 1, "answer": "yes", "text": "no", "question": "Is it?"}')
    [read] = read_responses(path, id_key="image_id", text_key="text")
    assert (read.id, read.text, read.questions) == (1, "no", ("Is it?",))
    with pytest.raises(InputError, match="text") as caught:
        read_responses(path, id_key="id", text_key="said")
    assert "said" in str(caught.value)


class Quiz:
    """Two questions on two images."""

    def asked(self, identity: Id) -> Question | None:
        question = {1: "Is there a dog?", 2: "Is there a cat?"}.get(int(identity))
        return Question(f"images/{identity}.jpg", question, {1: "yes", 2: "no"}.get(int(identity)))


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            Response(1, "yes", ("Is there a cat?",)),
            "Is there a cat",
        ),
        (Response(1, "yes", (), "2.jpg"), r"2\.jpg"),
        (Response(1, "yes", (), "1.jpg", "no"), "label 'no'"),
        (Response(1, " is there  a dog?"), "questions"),
    ],
)
def test_answers_to_other_questions_are_refused(response: Response, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_questions([response], Quiz().asked)


def test_answers_to_the_same_question_are_taken_however_it_is_wrapped() -> None:
    wrapped = "<image>\nIs there a dog?\nAnswer the question using a single word or phrase."
    check_questions(
        [Response(1, "yes", ("other", wrapped), "http://host/1.jpg", "Yes"), Response(9, "x", ("y",))],
        Quiz().asked,
    )
    check_questions(
        [Response(1, "Is there a dog?"), Response(2, "no")], Quiz().asked
    )  # a model may repeat one


def test_absent_and_undecodable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="response file"):
        read_responses(tmp_path / "r.jsonl")
    (tmp_path / "r.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_responses(tmp_path / "r.jsonl")


def test_check_keeps_order_and_refuses_repeats() -> None:
    responses = [Response(2, "a"), Response(1, "b"), Response(2, "c")]
    assert check_responses(responses[:2], known={1, 2, 3}) == responses[:2]
    with pytest.raises(InputError, match="twice"):
        check_responses(responses, known={1, 2, 3})


def test_many_missing_ids_are_summed_up() -> None:
    with pytest.raises(InputError, match="99 of 100"):
        check_responses([Response(0, "")], known=range(100), ids=range(100))


def test_item_row_that_lacks_something() -> None:
    with pytest.raises(InputError, match="'image'"):
        Item.from_json({"id": 1})


def test_summary_as_json() -> None:
    summary = Summary(
        benchmark="b",
        metrics={"x": Estimate(value=1.0, low=0.5, high=2.0), "y": Estimate(value=None, reason="none seen")},
        n=2,
        images=1,
    )
    assert summary.to_json() == {
        "benchmark": "b",
        "metrics": {
            "x": {"value": 1.0, "low": 0.5, "high": 2.0},
            "y": {"value": None, "low": None, "high": None, "reason": "none seen"},
        },
        "n": 2,
        "images": 1,
        "scorer": {},
        "official": {},
    }


def test_registry_lists_all_benchmarks_and_suggests() -> None:
    assert {"chair", "amber-generative", "amber-discriminative", "mmhal", "mmvet", "pope"} <= set(BENCHMARKS)
    with pytest.raises(UnknownNameError, match="did you mean chair"):
        BENCHMARKS["chairs"]


def test_scoring_needs_no_torch() -> None:
    names = [
        "chair.benchmark",
        "amber.generative",
        "amber.discriminative",
        "pope",
    ]
    code = f"import sys, importlib\nfor n in {names}: importlib.import_module('reweigh.lab.tasks.' + n)\n"
    code += "heavy = {'torch', 'transformers', 'nltk', 'spacy'} & set(sys.modules)\nsys.exit(str(heavy) if heavy else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
