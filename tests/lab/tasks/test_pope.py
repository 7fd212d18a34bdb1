from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.lab.runs.score import read_sources, score
from reweigh.lab.tasks.base import BENCHMARKS, Benchmark, Response, find_benchmark
from reweigh.lab.tasks.pope import PARSERS, POPE, SPLITS


@pytest.fixture
def pope(tmp_path: Path) -> Callable[..., POPE]:
    for split in SPLITS:
        rows = [
            {
                "question_id": n,
                "image": f"{n // 3}.jpg",
                "text": f"Is {n} there?",
                "label": ("yes", "no")[n % 2],
            }
            for n in range(1, 9)
        ]
        (tmp_path / f"coco_pope_{split}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return lambda **options: POPE(tmp_path, **options)


@pytest.mark.parametrize(
    ("text", "llava", "opera", "lmms"),
    [
        ("Yes", "yes", "yes", "yes"),
        ("No", "no", "no", "no"),
        ("no", "no", "no", "no"),
        ("NO", "yes", "no", "no"),
        ("", "yes", "yes", None),
        ("No!", "yes", "yes", None),
        ("No\n", "yes", "yes", "no"),
        (" yes ", "yes", "yes", "yes"),
        ("No, there is none.", "no", "no", None),
        ("No.", "no", "no", None),
        ("There isn't a dog", "yes", "no", None),
        ("It is there. It is not red.", "yes", "no", None),
        ("There is not, I think", "no", "no", None),
        ("Nothing", "yes", "yes", None),
    ],
)
def test_parsers(text: str, llava: str, opera: str, lmms: str | None) -> None:
    for label in ("yes", "no"):
        assert PARSERS["llava"](text, label) == llava
        assert PARSERS["opera"](text, label) == opera
        assert PARSERS["lmms-eval"](text, label) == lmms


@pytest.mark.parametrize(
    ("text", "right_if_yes", "right_if_no"),
    [
        ("Yes", True, False),
        ("NO", False, True),
        ("I know", False, True),
        ("a snowboard", False, True),
        ("a notebook", False, True),
        ("yes and no", True, True),
        ("maybe", False, False),
        ("", False, False),
    ],
)
def test_vcd_looks_for_the_label(text: str, right_if_yes: bool, right_if_no: bool) -> None:
    assert (PARSERS["vcd"](text, "yes") == "yes") == right_if_yes
    assert (PARSERS["vcd"](text, "no") == "no") == right_if_no


@given(st.text(max_size=20), st.sampled_from(["yes", "no"]), st.sampled_from(sorted(PARSERS)))
def test_any_text_has_a_reading(text: str, label: str, parser: str) -> None:
    answer = PARSERS[parser](text, label)
    assert answer in ("yes", "no") or (parser == "lmms-eval" and answer is None)


def test_registry_knows_it() -> None:
    made: Benchmark = POPE("anywhere")
    assert BENCHMARKS["pope"] is type(made)


def test_records_of_one_split_and_of_all(pope: Callable[..., POPE]) -> None:
    assert [record.id for record in pope(split="popular").records(limit=2)] == [1, 2]
    records = pope().records()
    assert len(records) == 24
    assert records[0].id == "random/1"
    assert records[-1].id == "adversarial/8"
    assert records[8].id == "popular/1"
    assert records[0].prompt == "Is 1 there?"


def test_worked_summary(pope: Callable[..., POPE]) -> None:
    # labels of 1..8:  no     yes    no    yes   no   yes   no    yes
    said = ["Yes", "Yes", "No", "No", "No", "Yes", "Yes", "maybe"]
    responses = [Response(n, text) for n, text in enumerate(said, start=1)]
    _, summary = pope(split="random").score(responses)
    values = {name: metric.value for name, metric in summary.metrics.items()}
    # The default parser takes "maybe" for yes: tp 2, 6, 8; fp 1, 7; tn 3, 5; fn 4.
    assert values["accuracy"] == pytest.approx(100 * 5 / 8)
    assert values["precision"] == pytest.approx(60)
    assert values["recall"] == pytest.approx(75)
    assert values["f1"] == pytest.approx(2 * 60 * 75 / 135)
    assert values["yes_ratio"] == pytest.approx(100 * 5 / 8)
    assert values["random_f1"] == values["f1"]
    assert values["popular_accuracy"] is None
    assert summary.scorer == {"parser": "llava", "split": "random", "unparsed": 0, "records": 8}

    _, exact = pope(split="random", parser="lmms-eval").score(responses)
    # "maybe" is wrong, but in neither precision nor recall: tp 2, 6; fp 1, 7; tn 3, 5; fn 4.
    assert exact.metrics["accuracy"].value == pytest.approx(50)
    assert exact.metrics["precision"].value == pytest.approx(50)
    assert exact.metrics["recall"].value == pytest.approx(100 * 2 / 3)
    assert exact.metrics["yes_ratio"].value == pytest.approx(50)  # of the answers: 4 of 8
    assert exact.official == {"yes_ratio_of_labels": 50.0}
    assert exact.scorer["unparsed"] == 1


@pytest.mark.parametrize("parser", sorted(PARSERS))
def test_figures_equal_a_plain_count(pope: Callable[..., POPE], parser: str) -> None:
    shuffler = random.Random(parser)
    benchmark = pope(parser=parser)
    responses = [
        Response(record.id, shuffler.choice(["Yes", "No", "not", "snow", "it isn't", "yes."]))
        for record in benchmark.records()
    ]
    items, summary = benchmark.score(responses)
    read = [(str(item.details["label"]), item.details["answer"], item.details["split"]) for item in items]
    for group in ("", *SPLITS):
        mine = [(label, answer) for label, answer, split in read if group in ("", split)]
        tp, fp, fn = (
            sum(pair == wanted for pair in mine) for wanted in (("yes", "yes"), ("no", "yes"), ("yes", "no"))
        )
        prefix = f"{group}_" if group else ""
        values = {name: summary.metrics[f"{prefix}{name}"].value for name in ("accuracy", "f1", "yes_ratio")}
        assert values["accuracy"] == pytest.approx(100 * sum(a == b for a, b in mine) / len(mine))
        assert values["f1"] == pytest.approx(100 * 2 * tp / (2 * tp + fp + fn))
        assert values["yes_ratio"] == pytest.approx(100 * (tp + fp) / len(mine))
    assert benchmark.summarize([*items[7:], *items[:7]]) == summary


def test_nothing_answered_yes_is_undefined_not_a_crash(pope: Callable[..., POPE]) -> None:
    _, summary = pope(split="random").score([Response(1, "No"), Response(2, "No")])
    assert summary.metrics["precision"].value is None
    assert "yes" in summary.metrics["precision"].reason
    assert summary.metrics["recall"].value == 0
    assert summary.metrics["f1"].value == 0
    _, empty = pope().score([])
    assert all(metric.value is None and metric.reason for metric in empty.metrics.values())


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ([Response("1", "Yes")], "id '1'"),
        ([Response(9, "Yes")], "id 9"),
        ([Response(1, 1)], "string"),  # type: ignore[arg-type]
        ([Response(1, "Yes"), Response(1, "No")], "twice"),
    ],
)
def test_responses_that_cannot_be_scored(
    pope: Callable[..., POPE], responses: list[Response], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        pope(split="random").score(responses)


def test_options_and_files_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hard"):
        POPE(tmp_path, split="hard")
    with pytest.raises(InputError, match="gpt"):
        POPE(tmp_path, parser="gpt")
    with pytest.raises(InputError, match="reweigh data pope"):
        POPE(tmp_path).records()
    path = tmp_path / "coco_pope_random.json"
    for text, message in (
        ("{", "JSON"),
        ('{"question_id": 1}', "POPE question"),
        ('{"question_id": 1, "image": "a", "text": "b", "label": "maybe"}', "'maybe'"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            POPE(tmp_path, split="random").records()


def scored(pope: Callable[..., POPE], path: Path, rows: list[dict[str, object]], **keys: str) -> float | None:
    """What the file of some rows scores, as `eval score` reads it."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = pope(split="random")
    source = read_sources([path], reader=benchmark.read_responses, **keys)
    return score(benchmark, source)[1].metrics["accuracy"].value


def test_answers_under_an_unknown_key_do_not_let_the_question_be_scored(
    pope: Callable[..., POPE], tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (tmp_path / "coco_pope_random.json").read_text().splitlines()]
    said: list[dict[str, object]] = [row | {"predicted": "No"} for row in rows]
    with pytest.raises(InputError, match="questions") as caught:
        scored(pope, tmp_path / "said.jsonl", said)
    assert "--keys" in str(caught.value)
    assert scored(pope, tmp_path / "said.jsonl", said, text_key="predicted") == 50
    labeled = [{"question_id": row["question_id"], "answer": row["label"], "text": "yes"} for row in rows]
    with pytest.raises(InputError, match="'answer'"):
        scored(pope, tmp_path / "said.jsonl", labeled)
    assert scored(pope, tmp_path / "said.jsonl", labeled, text_key="text") == 50
    shifted = [row | {"question_id": row["question_id"] % 8 + 1, "predicted": "No"} for row in rows]
    with pytest.raises(InputError, match="Is 2 there"):
        scored(pope, tmp_path / "said.jsonl", shifted, text_key="predicted")


def test_the_official_question_files_are_never_scored_as_answers(shared_data: Path, tmp_path: Path) -> None:
    """What LLaVA's program writes is scored, the file it was made from is not."""
    rows = [
        json.loads(line) for line in (shared_data / "pope" / "coco_pope_random.json").read_text().splitlines()
    ]
    llava = [
        {"question_id": row["question_id"], "prompt": f"{row['text']}\nAnswer with one word.", "text": "No"}
        | {"answer_id": "x", "model_id": "llava", "metadata": {}}
        for row in rows
    ]

    def benchmark(**options: str) -> POPE:
        return POPE(shared_data / "pope", **options)  # type: ignore[arg-type]

    assert scored(benchmark, tmp_path / "said.jsonl", llava) is not None
    with pytest.raises(InputError, match="questions"):
        scored(benchmark, tmp_path / "said.jsonl", rows)


def test_real_splits(shared_data: Path) -> None:
    benchmark = POPE(shared_data / "pope")
    records = benchmark.records()
    sizes = {split: sum(str(record.id).startswith(split) for record in records) for split in SPLITS}
    assert sizes["popular"] == sizes["adversarial"] == 3000
    assert sizes["random"] in (2910, 3000)
    _, summary = benchmark.score([Response(record.id, "Yes") for record in records])
    assert summary.metrics["popular_accuracy"].value == 50
    assert summary.metrics["yes_ratio"].value == 100
    assert summary.images == 500


def write_rows(path: Path, rows: list[tuple[int, str, str, str]]) -> None:
    keys = ("question_id", "image", "text", "label")
    path.write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))


@pytest.fixture
def repope(tmp_path: Path) -> Path:
    """A copy of POPE with other ids and spelling than RePOPE's; RePOPE drops the bus and mends the dog's label."""
    folder = tmp_path / "repope"
    folder.mkdir()
    for split in SPLITS:
        write_rows(
            tmp_path / f"coco_pope_{split}.json",
            [
                (1, "7.jpg", "Is there a dog in the image?", "yes"),
                (2, "7.jpg", "Is there an umbrella in the imange?", "no"),
                (3, "7.jpg", "Is there a bus in the image?", "yes"),
                (4, "8.jpg", "Is there a dog in the image?", "yes"),
            ],
        )
        write_rows(
            folder / f"coco_repope_{split}.json",
            [
                (4, "7.jpg", "Is there a dog in the image?", "no"),
                (1, "7.jpg", "Is there an umbrella in the image?", "no"),
                (2, "8.jpg", "Is there a dog in the image?", "yes"),
                (3, "9.jpg", "Is there a cat in the image?", "yes"),
            ],
        )
    return folder


def test_corrected_labels_are_found_by_picture_and_object(repope: Path) -> None:
    benchmark = POPE(repope.parent, split="popular", repope=repope)
    assert [record.id for record in benchmark.records()] == [1, 2, 4]
    items, summary = benchmark.score([Response(number, "Yes") for number in (1, 2, 4)])
    assert [item.details["label"] for item in items] == ["no", "no", "yes"]
    assert summary.metrics["accuracy"].value == pytest.approx(100 / 3)
    told = {name: summary.scorer[name] for name in ("labels", "dropped", "relabelled", "not_asked")}
    assert told == {"labels": "repope", "dropped": 1, "relabelled": 1, "not_asked": 1}
    assert summary.official["yes_ratio_of_labels"] == pytest.approx(100 / 3)
    assert len(POPE(repope.parent, repope=repope).records()) == 9
    assert len(POPE(repope.parent).records()) == 12


def test_wrong_files_of_corrected_labels_are_named(repope: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"coco_repope_random\.json is not in"):
        POPE(repope.parent, repope=tmp_path / "nowhere").records()
    path = repope / "coco_repope_popular.json"
    for rows, words in (
        ([(1, "7.jpg", "Is there a dog in the image?", "maybe")], "label"),
        ([(1, "7.jpg", "What is this?", "yes")], "does not ask"),
        ([(1, "0.jpg", "Is there a dog in the image?", "yes")], "none of the questions"),
        (
            [
                (1, "7.jpg", "Is there a dog in the image?", "yes"),
                (2, "7.jpg", "Is there a dog in the imange?", "no"),
            ],
            "contradicts",
        ),
    ):
        write_rows(path, rows)
        with pytest.raises(InputError, match=words):
            POPE(repope.parent, split="popular", repope=repope).records()


def test_a_question_id_twice_is_refused(pope: Callable[..., POPE], tmp_path: Path) -> None:
    path = tmp_path / "coco_pope_popular.json"
    path.write_text(path.read_text() + path.read_text().splitlines()[2])
    with pytest.raises(InputError, match="question id 3 twice"):
        pope(split="popular").records()


@pytest.mark.parametrize("change", [{"image": "2.jpg"}, {"label": "no"}, {"text": "Is 5 there?"}], ids=str)
def test_answers_that_contradict_the_benchmark_are_refused(
    pope: Callable[..., POPE], tmp_path: Path, change: dict[str, str]
) -> None:
    """A file of another order or version, whose answers would count for other questions."""
    rows = [json.loads(line) for line in (tmp_path / "coco_pope_random.json").read_text().splitlines()]
    answered = [{**row, "answer": "yes"} for row in rows]
    said = tmp_path / "said.jsonl"
    said.write_text("".join(json.dumps(row) + "\n" for row in answered))
    score(pope(split="random"), read_sources([said], text_key="answer"))
    said.write_text(json.dumps({**answered[1], **change}))
    wrong = read_sources([said], text_key="answer")
    with pytest.raises(InputError, match="id 2"):
        score(pope(split="random"), wrong, partial=True)


def test_a_key_twice_in_a_row_is_refused(pope: Callable[..., POPE], tmp_path: Path) -> None:
    path = tmp_path / "coco_pope_random.json"
    path.write_text(path.read_text().replace('"label": "yes"', '"label": "no", "label": "yes"', 1))
    with pytest.raises(InputError, match="label"):
        pope(split="random").records()


@pytest.mark.parametrize(("name", "on"), [("pope-aokvqa", "aokvqa"), ("pope-gqa", "gqa")])
def test_questions_on_other_images_have_files_of_their_own(
    pope: Callable[..., POPE], tmp_path: Path, name: str, on: str
) -> None:
    for split in SPLITS:
        (tmp_path / f"coco_pope_{split}.json").rename(tmp_path / f"{on}_pope_{split}.json")
    opened = find_benchmark(name)(tmp_path)
    assert len(opened.records()) == 24
    _, summary = opened.score([Response("popular/1", "Yes."), Response("random/2", "Yes.")])
    assert (summary.benchmark, summary.metrics["accuracy"].value) == (name, 50)
    with pytest.raises(InputError, match="RePOPE"):
        find_benchmark(name)(tmp_path, repope=tmp_path)
    with pytest.raises(InputError, match=r"(?s)coco_pope.*reweigh data pope`"):
        pope().records()
