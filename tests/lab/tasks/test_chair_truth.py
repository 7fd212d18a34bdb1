from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.lab.tasks.chair.mentions import MentionFinder, Vocabulary
from reweigh.lab.tasks.chair.truth import (
    CocoTruth,
    ReadyTruth,
    read_manifest,
    sample_images,
)
from reweigh.lab.tasks.coco import Coco

CATEGORIES = [{"id": 1, "name": "dog"}, {"id": 2, "name": "dining table"}, {"id": 3, "name": "cat"}]


def write_coco(
    folder: Path,
    split: str,
    year: str,
    *,
    captions: dict[int, list[str]],
    instances: list[tuple[int, int, int]],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    images = [{"id": image, "file_name": f"{split}_{image}.jpg"} for image in captions]
    rows = [{"image_id": image, "caption": text} for image, texts in captions.items() for text in texts]
    (folder / f"captions_{split}{year}.json").write_text(json.dumps({"images": images, "annotations": rows}))
    boxes = [
        {"image_id": image, "category_id": category, "iscrowd": crowd, "segmentation": [[0.5] * 6]}
        for image, category, crowd in instances
    ]
    content = {"images": images, "annotations": boxes, "categories": CATEGORIES}
    (folder / f"instances_{split}{year}.json").write_text(json.dumps(content))


@pytest.fixture
def coco_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "annotations"
    write_coco(
        folder,
        "val",
        "2014",
        captions={7: ["Two dogs on a couch", "A man sits."], 9: ["Nothing here."]},
        instances=[(7, 2, 0), (7, 3, 1)],
    )
    write_coco(folder, "train", "2014", captions={8: ["a bus"]}, instances=[(8, 1, 0)])
    return tmp_path


def truth_of(folder: Path, finder: MentionFinder, **options: Any) -> CocoTruth:
    return CocoTruth(Coco(folder, **options), finder)


def test_truth_is_instances_and_captions_crowds_included(
    coco_dir: Path, wordnet_finder: MentionFinder
) -> None:
    truth = truth_of(coco_dir, wordnet_finder)
    truth.require({7, 9})
    assert truth.ids() == {7, 9}  # the training files are not read before they are needed
    truth.require({7, 8})
    assert truth.ids() == {7, 8, 9}
    assert truth.objects(7) == {"dining table", "cat", "dog", "person"}
    assert truth.objects(8) == {"dog", "bus"}
    assert truth.objects(9) == set()


def test_years_do_not_mix_unless_they_must(coco_dir: Path, wordnet_finder: MentionFinder) -> None:
    folder = coco_dir / "annotations"
    write_coco(folder, "val", "2017", captions={7: ["a cat"]}, instances=[(7, 1, 0)])
    assert truth_of(coco_dir, wordnet_finder).objects(7) == {"dining table", "cat", "dog", "person"}
    assert truth_of(coco_dir, wordnet_finder, year="2017").objects(7) == {"cat", "dog"}
    for name in ("val", "train"):
        (folder / f"instances_{name}2014.json").unlink()
    mixed = truth_of(coco_dir, wordnet_finder)  # captions of 2014 with instances of 2017, as some programs do
    assert mixed.objects(7) == {"dog", "person"}
    assert mixed.describe()["files"]["instances"] == ["instances_val2017.json"]


def test_missing_and_broken_annotations_are_named(tmp_path: Path, coco_dir: Path) -> None:
    with pytest.raises(InputError, match="captions_train/val2014"):
        Coco(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"captions_train/val2017\.json"):
        Coco(coco_dir, year="2017")
    broken = coco_dir / "annotations" / "captions_val2014.json"
    broken.write_text('{"images": [')
    with pytest.raises(InputError, match=r"captions_val2014\.json"):
        Coco(coco_dir)
    broken.write_text('{"images": []}')
    with pytest.raises(InputError, match="'annotations'"):
        Coco(coco_dir)
    for rows in ([3], [{"image_id": 1, "caption": None}], None):
        broken.write_text(json.dumps({"images": [], "annotations": rows}))
        with pytest.raises(InputError, match="COCO captions"):
            Coco(coco_dir)


def test_category_unknown_to_the_table_is_refused(coco_dir: Path, backend: Any) -> None:
    finder = MentionFinder(Vocabulary.parse("dog\ncat"), "wordnet", backend)
    with pytest.raises(InputError, match="dining table"):
        truth_of(coco_dir, finder).objects(7)


def test_written_truth_reads_back_equal(
    coco_dir: Path, tmp_path: Path, wordnet_finder: MentionFinder, vocabulary: Vocabulary
) -> None:
    truth = truth_of(coco_dir, wordnet_finder)
    path = tmp_path / "truth.json"
    truth.require({8})
    images = truth.ids()
    objects = {str(image): sorted(truth.objects(image)) for image in images}
    path.write_text(json.dumps({"variant": "wordnet", "objects": objects}))
    ready = ReadyTruth(path, vocabulary, variant="wordnet")
    assert set(ready.ids()) == images
    assert [ready.objects(image) for image in images] == [truth.objects(image) for image in images]
    with pytest.raises(MismatchError, match="wordnet"):
        ReadyTruth(path, vocabulary, variant="pattern")


def test_ready_truth_of_others(tmp_path: Path, vocabulary: Vocabulary) -> None:
    content = {"7": ["dog", "cat"], "9": []}
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(content))
    ready = ReadyTruth(path, vocabulary, variant="wordnet")
    assert set(ready.ids()) == {7, 9}
    assert ready.objects(7) == {"dog", "cat"}
    assert ready.objects(9) == set()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"7": ["puppy"]}, "puppy"),
        ({"7": ["stool"]}, "stool"),  # a synonym is not a category
        ({"x": ["dog"]}, "COCO"),
        ({"7": "dog"}, "objects"),
        ([3], "list"),
        (3, "int"),
    ],
)
def test_wrong_ready_truth_is_refused(
    tmp_path: Path, vocabulary: Vocabulary, content: Any, message: str
) -> None:
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        ReadyTruth(path, vocabulary, variant="wordnet")


def test_pickled_truth_is_refused_unread(tmp_path: Path, vocabulary: Vocabulary) -> None:
    path = tmp_path / "chair.pkl"
    path.write_bytes(pickle.dumps({7: {"dog"}}))
    with pytest.raises(InputError, match="pickle"):
        ReadyTruth(path, vocabulary, variant="wordnet")


def test_draw_depends_on_seed_and_set_only() -> None:
    ids = list(range(1000, 2000))
    drawn = sample_images(ids, count=50, seed=42)
    assert drawn == sample_images(reversed(ids), count=50, seed=42) == sorted(set(drawn))
    assert len(drawn) == 50
    assert drawn != sample_images(ids, count=50, seed=43)
    assert drawn[:3] == [1006, 1025, 1027]  # the draw must not change between releases
    assert sample_images([3, 1, 2], count=500, seed=1) == [1, 2, 3]


def test_manifest_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"ids": [5, 3]}))
    assert read_manifest(path) == [5, 3]
    path.write_text("[1, 2]")
    assert read_manifest(path) == [1, 2]
    for wrong, message in (('["1"]', "integer"), ("{}", "manifest"), ("[1, 1]", "twice")):
        path.write_text(wrong)
        with pytest.raises(InputError, match=message):
            read_manifest(path)
    with pytest.raises(ArtifactError, match="exist"):
        read_manifest(tmp_path / "absent.json")
