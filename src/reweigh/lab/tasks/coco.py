"""COCO annotation files as CHAIR needs them: images, instance categories and captions.

Reads the files of 2014 or 2017; train, val or both.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.lab.tasks.data import Dataset, File, find_files, parsing

_NAME = re.compile(r"(captions|instances)_(train|val)(\d{4})\.json")
YEARS = ("2014", "2017")

COCO_FOLDER = "coco"
"""Images of both splits and annotations lie in one folder, which is also the default of ``reproduce --coco``."""
COCO_URL = "http://images.cocodataset.org"


def _images(split: str, use: str, size: int, md5: str) -> Dataset:
    archive = File(
        name=f"{split}.zip",
        url=f"{COCO_URL}/zips/{split}.zip",
        size=size,
        checksum=f"md5:{md5}",
        holds=(split,),
    )
    return Dataset(
        name=f"coco-{split}",
        title=f"COCO {split} images, {use}",
        license="Flickr terms of use",
        page="https://cocodataset.org",
        files=(archive,),
        shared=COCO_FOLDER,
    )


COCO_VAL2014 = _images("val2014", "for CHAIR and POPE", 6_645_013_297, "a3d79f5ed8d289b7a7554ce06a5782b3")
COCO_TRAIN2014 = _images(
    "train2014", "for calibration and tuning", 13_510_573_713, "0da8c0bd3d6becc4dcb32757491aca88"
)


def image_names(number: int) -> list[str]:
    """List the file names of an image in the releases of 2014 and 2017."""
    return [f"COCO_val2014_{number:012d}.jpg", f"{number:012d}.jpg"]


class Coco:
    """What the annotation files say, by image id.

    One split is read at once and the rest only when :meth:`complete` is called, because the training files are large.

    Args:
        data_dir: Folder of the files, or a folder above it.
        year: 2014 or 2017; by default 2014 where its files exist, for captions and instances each.
        split: The split to read at once.
    """

    def __init__(self, data_dir: Path, *, year: str | None = None, split: str = "val") -> None:
        self.image_file: dict[str, dict[int, str]] = defaultdict(dict)
        """Split (train or val) to image id to file name."""
        self.captions: dict[int, list[str]] = defaultdict(list)
        self.instances: dict[int, set[str]] = defaultdict(set)
        chosen = {
            kind: _choose_year(find_files(data_dir, f"{kind}_*.json"), kind, data_dir, year)
            for kind in ("captions", "instances")
        }
        self.files = {kind: [path.name for path in paths] for kind, paths in chosen.items()}
        self._pending = [(kind, path) for kind, paths in chosen.items() for path in paths]
        years = {name[-9:-5] for names in self.files.values() for name in names}
        # The two years split the images differently, so all files are needed at once.
        self._load(lambda path: len(years) > 1 or f"_{split}2" in path.name)

    def ids(self) -> set[int]:
        """Return all images in the files read so far."""
        listed = {identity for split in self.image_file.values() for identity in split}
        return listed | self.captions.keys() | self.instances.keys()

    def complete(self) -> None:
        """Read the remaining files."""
        self._load(lambda path: True)

    def _load(self, wanted: Callable[[Path], bool]) -> None:
        now = [(kind, path) for kind, path in self._pending if wanted(path)]
        self._pending = [entry for entry in self._pending if entry not in now]
        for kind, path in now:
            self._add(path, kind)

    def _add(self, path: Path, kind: str) -> None:
        content = _parse(path)
        with parsing(f"{path} is not a COCO {kind} file", hint="unpack the annotations again"):
            split = _NAME.fullmatch(path.name)
            names = self.image_file[split.group(2) if split else ""]
            names.update({image["id"]: _text(image["file_name"]) for image in content["images"]})
            if kind == "captions":
                for row in content["annotations"]:
                    self.captions[row["image_id"]].append(_text(row["caption"]))
            else:
                category = {row["id"]: row["name"] for row in content["categories"]}
                for row in content["annotations"]:
                    self.instances[row["image_id"]].add(category[row["category_id"]])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _choose_year(paths: Iterable[Path], kind: str, data_dir: Path, year: str | None) -> list[Path]:
    named = [(match.group(3), path) for path in paths if (match := _NAME.fullmatch(path.name))]
    for wanted in [year] if year else YEARS:
        if chosen := [path for found, path in named if found == wanted]:
            return chosen
    raise InputError(
        f"{data_dir} has no {kind}_train/val{year or '2014 (or 2017)'}.json",
        hint="fetch COCO's annotations with `reweigh data chair`, or give a ready ground-truth file",
    )


def _parse(path: Path) -> Any:
    try:
        with path.open(encoding="utf-8") as file:
            return json.load(file, object_hook=_without_outlines)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not valid JSON ({error})", hint="unpack the annotations again"
        ) from error


def _without_outlines(value: dict[str, Any]) -> dict[str, Any]:
    """Drop segmentation masks while parsing: most of the bytes, and not needed."""
    value.pop("segmentation", None)
    return value
