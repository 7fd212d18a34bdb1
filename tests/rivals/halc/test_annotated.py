"""The oracle detector finds what its file says of a picture and of its mirror image, and refuses what it does not know."""

from __future__ import annotations

import json

import pytest
from PIL.ImageOps import mirror

from checkpoints import picture
from reweigh.errors import ArtifactError, InputError
from reweigh.rivals.halc.grounding import AnnotatedBoxes, load_detector

DOG, BUS = [0.125, 0.25, 0.5, 1.0], [0.5, 0.0, 1.0, 0.75]


def write(folder, *rows):
    picture(1).save(folder / "one.png")
    path = folder / "boxes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_words_are_found_by_their_pictures_annotations(tmp_path):
    objects = [
        {"words": ["dog", "puppy"], "box": DOG},
        {"words": ["bus", "buses"], "box": BUS},
        {"words": ["Dog"], "box": BUS},
    ]
    found = load_detector(str(write(tmp_path, {"image": "one.png", "objects": objects})))
    assert isinstance(found, AnnotatedBoxes)
    assert found(picture(1), "dog") == [tuple(DOG), tuple(BUS)]
    assert found(picture(1), "Puppy") == [tuple(DOG)]
    assert found(picture(1), "bu") == found(picture(1), "buse") == [tuple(BUS)]  # as HALC asks for them
    assert found(picture(1), "cat") == []
    assert found(mirror(picture(1)), "puppy") == [(0.5, 0.25, 0.875, 1.0)]
    with pytest.raises(InputError, match="56x56"):
        found(picture(2), "dog")


@pytest.mark.parametrize(
    "row",
    [
        {"image": "one.png"},
        {"image": "one.png", "objects": [{"words": ["dog"], "box": [0.1, 0.2, 0.1, 0.4]}]},
        {"image": "one.png", "objects": [{"words": ["dog"], "box": [10, 20, 30, 40]}]},
        {"image": "one.png", "objects": [{"words": ["dog"], "box": [0.1, 0.2]}]},
        {"image": "one.png", "objects": [{"words": [3], "box": DOG}]},
        {"image": 3, "objects": []},
        [1],
    ],
)
def test_a_broken_line_is_named(row, tmp_path):
    good = {"image": "one.png", "objects": []}
    with pytest.raises(ArtifactError, match="line 2"):
        AnnotatedBoxes(write(tmp_path, good, row))
