from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reweigh.errors import InputError
from reweigh.lab.tasks.base import BENCHMARKS, Benchmark, Item, Response
from reweigh.lab.tasks.chair.benchmark import CHAIR
from reweigh.lab.tasks.language import Language

TABLE = "person, man\ndog, puppy\ncat\nchair, seat\ntoilet\n"
TRUTH = {"1": ["dog", "person"], "2": ["cat"], "3": []}


@pytest.fixture
def chair(tmp_path: Path, backend: Language) -> Callable[..., CHAIR]:
    (tmp_path / "synonyms.txt").write_text(TABLE)
    (tmp_path / "truth.json").write_text(json.dumps(TRUTH))

    def make(**options: Any) -> CHAIR:
        return CHAIR(tmp_path, ground_truth=tmp_path / "truth.json", backend=backend, **options)

    return make


CAPTIONS = [
    Response(1, "A puppy, a dog and a cat."),
    Response(2, "Nothing to see here."),
    Response(3, "Two men sit."),  # men are lost in this variant, and the image holds nothing
]


def test_registry_knows_it() -> None:
    made: Benchmark = CHAIR("anywhere")
    assert BENCHMARKS["chair"] is CHAIR
    assert made.name == "chair"


def test_worked_example(chair: Callable[..., CHAIR]) -> None:
    items, summary = chair().score(CAPTIONS)
    values = {name: metric.value for name, metric in summary.metrics.items()}
    assert values["chair_s"] == pytest.approx(100 / 3)
    assert values["chair_i"] == pytest.approx(100 / 3)
    assert values["recall"] == pytest.approx(100 / 3)
    assert values["f1"] == pytest.approx(2 * (200 / 3) * (100 / 3) / 100)
    assert values["length"] == pytest.approx((7 + 4 + 3) / 3)
    assert summary.official == {"CHAIRs": 33.3, "CHAIRi": 33.3, "Recall": 33.3, "Len": 6.0}
    assert (summary.n, summary.images) == (3, 3)
    assert summary.scorer["variant"] == "wordnet"
    assert summary.scorer["language"]["backend"] == "nltk"
    assert summary.scorer["ground_truth"]["source"] == "file"
    text = CAPTIONS[0].text
    colored = [
        (text[mention["start"] : mention["end"]], mention["object"], mention["hallucinated"])
        for mention in items[0].details["mentions"]
    ]
    assert colored == [("puppy", "dog", False), ("dog", "dog", False), ("cat", "cat", True)]
    assert items[0].details["missed"] == ["person"]
    assert [Item.from_json(json.loads(json.dumps(item.to_json()))) for item in items] == items
    assert json.loads(json.dumps(summary.to_json()))["metrics"]["chair_i"]["value"] == values["chair_i"]


def test_shards_merge_to_the_whole(chair: Callable[..., CHAIR]) -> None:
    benchmark = chair()
    whole_items, whole = benchmark.score(CAPTIONS)
    second, _ = benchmark.score(CAPTIONS[1:])
    first, _ = chair().score(CAPTIONS[:1])
    assert benchmark.summarize([*second, *first]) == whole
    assert sorted([*second, *first], key=lambda item: item.id) == whole_items


def test_no_captions_and_no_mentions_are_defined(chair: Callable[..., CHAIR]) -> None:
    items, summary = chair().score([])
    assert items == []
    assert summary.metrics["chair_s"].value is None
    assert summary.official["CHAIRs"] is None
    _, silent = chair().score([Response(3, ""), Response(2, "\n")])
    assert silent.metrics["chair_s"].value == 0
    assert silent.metrics["chair_i"].value is None
    assert silent.official == {"CHAIRs": 0.0, "CHAIRi": None, "Recall": 0.0, "Len": 0.0}


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ([Response("1", "a dog")], "integer"),
        ([Response(4, "a dog")], "id 4"),
        ([Response(True, "a dog")], "True"),
        ([Response(1, "a"), Response(1, "b")], "twice"),
        ([Response(1, None)], "null"),  # type: ignore[arg-type]
        ([Response(1, ["a"])], "list"),  # type: ignore[arg-type]
    ],
)
def test_responses_that_cannot_be_scored(
    chair: Callable[..., CHAIR], responses: list[Response], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        chair().score(responses)


def test_missing_ids_are_an_error_where_completeness_is_asked(chair: Callable[..., CHAIR]) -> None:
    with pytest.raises(InputError, match="2 of 3"):
        chair().score(CAPTIONS[:1], ids=[1, 2, 3])
    with pytest.raises(InputError, match="first is 3"):
        chair().score(CAPTIONS, ids=[1, 2])


def test_huge_caption_is_scored(chair: Callable[..., CHAIR]) -> None:
    items, _ = chair().score([Response(1, "a dog " * 20_000 + "x" * 100_000)])
    assert items[0].counts["mentions"] == 20_000


def test_missing_table_names_the_command(tmp_path: Path, backend: Language) -> None:
    with pytest.raises(InputError, match=r"(?s)synonyms\.txt.*data chair"):
        CHAIR(tmp_path, backend=backend).score([])


@pytest.fixture(scope="module")
def tiny(shared_data: Path, backend: Language) -> CHAIR:
    return CHAIR(shared_data / "tiny_coco", synonyms=shared_data / "chair" / "synonyms.txt", backend=backend)


def test_records_of_real_coco(tiny: CHAIR, shared_data: Path) -> None:
    records = tiny.records()
    assert len(records) == 50
    assert all((shared_data / "tiny_coco" / "val2017" / record.image).is_file() for record in records)
    assert {record.prompt for record in records} == {"Please describe this image in detail."}
    assert {record.max_new_tokens for record in records} == {512}
    assert tiny.records(limit=3) == records[:3]


def test_whole_path_on_real_coco(tiny: CHAIR, shared_data: Path) -> None:
    captions: dict[int, list[str]] = {}
    for split in ("train", "val"):
        content = json.loads((shared_data / f"tiny_coco/annotations/captions_{split}2017.json").read_text())
        for row in content["annotations"]:
            captions.setdefault(row["image_id"], []).append(row["caption"])
    assert len(captions) == 100
    own = [Response(image, texts[0]) for image, texts in captions.items()]
    items, summary = tiny.score(own)
    assert summary.metrics["chair_i"].value == 0  # a reference caption is part of its own truth
    assert summary.official["CHAIRs"] == 0
    assert 30 < summary.metrics["recall"].value < 90  # type: ignore[operator]
    average = sum(item.counts["reference"] for item in items) / len(items)
    assert 2.5 < average < 4.5  # about 3.2 categories in an image over all of COCO

    images = list(captions)
    strangers = [
        Response(image, captions[images[(index + 1) % 100]][0]) for index, image in enumerate(images)
    ]
    _, wrong = tiny.score(strangers)
    assert wrong.metrics["chair_i"].value > 30  # type: ignore[operator]
    assert wrong.metrics["chair_i"].low < wrong.metrics["chair_i"].value < wrong.metrics["chair_i"].high  # type: ignore[operator]


def test_manifest_chooses_the_records(
    tiny: CHAIR, tmp_path: Path, shared_data: Path, backend: Language
) -> None:
    chosen = [record.id for record in tiny.records()][4:1:-1]
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(chosen))
    options = {"synonyms": shared_data / "chair" / "synonyms.txt", "backend": backend, "manifest": path}
    assert [record.id for record in CHAIR(shared_data / "tiny_coco", **options).records()] == chosen
    path.write_text("[1]")
    with pytest.raises(InputError, match="image 1"):
        CHAIR(shared_data / "tiny_coco", **options).records()


def test_a_cut_last_sentence_is_dropped_on_request(chair: Callable[..., CHAIR]) -> None:
    cut = [
        Response(1, "A dog sleeps. A man strokes a cat and a"),
        Response(2, "A cat."),
        Response(3, "A dog and"),
    ]
    kept, dropped = (chair(**options).score(cut) for options in ({}, {"cut": "drop"}))
    named = [
        [[one["object"] for one in item.details["mentions"]] for item in items]
        for items, _ in (kept, dropped)
    ]
    assert named == [[["dog", "person", "cat"], ["cat"], ["dog"]], [["dog"], ["cat"], []]]
    values = {name: one.value for name, one in dropped[1].metrics.items()}
    assert (values["chair_s"], values["chair_i"]) == (0, 0)
    assert values["length"] == pytest.approx((3 + 2 + 0) / 3)
    assert (kept[1].scorer["cut"], dropped[1].scorer["cut"]) == ("keep", "drop")
    with pytest.raises(InputError, match="keep"):
        chair(cut="halve")
