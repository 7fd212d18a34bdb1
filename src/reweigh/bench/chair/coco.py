"""COCO annotation files as CHAIR needs them: which images, which instance categories, which captions.

Takes the files of 2014 or of 2017, train and val or either alone. Knows nothing of vocabulary or mentions.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reweigh.bench.files import find_files
from reweigh.errors import InputError

_NAME = re.compile(r"(captions|instances)_(train|val)(\d{4})\.json")
YEARS = ("2014", "2017")


@dataclass
class Coco:
    """What the annotation files say, by image id."""

    files: dict[str, list[str]] = field(default_factory=dict)
    image_file: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Split (train or val) to image id to file name."""
    captions: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    instances: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def ids(self) -> set[int]:
        """All images that any of the files knows."""
        listed = {identity for split in self.image_file.values() for identity in split}
        return listed | self.captions.keys() | self.instances.keys()

    @classmethod
    def read(cls, data_dir: Path, *, year: str | None = None) -> Coco:
        """Read all caption and instance files of one year each, 2014 before 2017 unless a year is given."""
        coco = cls()
        for kind in ("captions", "instances"):
            paths = _choose_year(find_files(data_dir, f"{kind}_*.json"), kind, data_dir, year)
            coco.files[kind] = [path.name for path in paths]
            for path in paths:
                coco._add(path, kind)
        return coco

    def _add(self, path: Path, kind: str) -> None:
        content = _load(path)
        try:
            split = _NAME.fullmatch(path.name)
            names = self.image_file[split.group(2) if split else ""]
            names.update({image["id"]: image["file_name"] for image in content["images"]})
            if kind == "captions":
                for row in content["annotations"]:
                    self.captions[row["image_id"]].append(row["caption"])
            else:
                category = {row["id"]: row["name"] for row in content["categories"]}
                for row in content["annotations"]:
                    self.instances[row["image_id"]].add(category[row["category_id"]])
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path} is not a COCO {kind} file: {error} is missing or of another type"
            ) from error


def _choose_year(paths: Iterable[Path], kind: str, data_dir: Path, year: str | None) -> list[Path]:
    named = [(match.group(3), path) for path in paths if (match := _NAME.fullmatch(path.name))]
    for wanted in [year] if year else YEARS:
        if chosen := [path for found, path in named if found == wanted]:
            return chosen
    raise InputError(
        f"{data_dir} has no {kind}_train/val{year or '2014 (or 2017)'}.json",
        hint="fetch COCO's annotations with `reweigh data get chair`, or give a ready ground-truth file",
    )


def _load(path: Path) -> Any:
    try:
        with path.open(encoding="utf-8") as file:
            return json.load(file, object_hook=_without_outlines)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not valid JSON ({error})", hint="unpack the annotations again"
        ) from error


def _without_outlines(value: dict[str, Any]) -> dict[str, Any]:
    """Forget segmentation masks while parsing: they are nearly all of the bytes and none of the truth."""
    value.pop("segmentation", None)
    return value
