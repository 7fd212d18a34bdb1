"""Ground truth of CHAIR: the instance categories of an image, and what any reference caption mentions.

It comes from COCO's files or from a ready ground-truth file. An unknown image id, or a string instead of an integer,
is an error; the published scorers silently treat it as an image with nothing in it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from reweigh.errors import InputError, MismatchError
from reweigh.files.artifacts import read_json, sha256_file
from reweigh.lab.tasks.base import Id
from reweigh.lab.tasks.chair.mentions import MentionFinder, Vocabulary
from reweigh.lab.tasks.coco import Coco


class CocoTruth:
    """Ground truth from COCO's annotations; captions are read only for the images that are needed."""

    def __init__(self, coco: Coco, finder: MentionFinder) -> None:
        self._coco = coco
        self._finder = finder
        self.objects = cache(self._objects)

    def require(self, wanted: Collection[Id]) -> None:
        """Read the remaining files if they are needed to find these images."""
        if not set(wanted) <= self._coco.ids():
            self._coco.complete()

    def ids(self) -> Collection[int]:
        """Return the images of the files read so far."""
        return self._coco.ids()

    def _objects(self, image: int) -> frozenset[str]:
        category_of = self._finder.vocabulary.category_of
        instances = self._coco.instances.get(image, set())
        _check_categories(instances, category_of)
        found = {category_of[name] for name in instances}
        for caption in self._coco.captions.get(image, ()):
            found.update(mention.category for mention in self._finder.read(caption).mentions)
        return frozenset(found)

    def describe(self) -> dict[str, Any]:
        return {"source": "coco", "files": self._coco.files}


class ReadyTruth:
    """Ground truth from a JSON file: image id to object names, or such a map under ``objects`` beside its ``variant``."""

    def __init__(self, path: str | Path, vocabulary: Vocabulary, *, variant: str) -> None:
        self._path = path = Path(path)
        if path.suffix in (".pkl", ".pickle"):
            raise InputError(
                f"{path} is a pickle, which can run code when read",
                hint="use COCO's annotations, or convert the file to JSON: id to object names",
            )
        content = read_json(path)
        if isinstance(content, dict) and isinstance(content.get("objects"), dict):
            if content.get("variant", variant) != variant:
                raise MismatchError(
                    f"{path} was made by the variant {content['variant']!r}, the scorer is {variant!r}",
                    hint="the two disagree on 1.4% of COCO's images; make the file with the same variant",
                )
            content = content["objects"]
        if not isinstance(content, dict):
            raise InputError(
                f"{path} contains a {type(content).__name__}; expected a map of image id to object names"
            )
        self._objects: dict[int, frozenset[str]] = {}
        for identity, names in content.items():
            if not identity.isdecimal():
                raise InputError(f"{path}: {identity!r} is not a COCO image id")
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InputError(f"{path}: the objects of image {identity} are not a list of names")
            _check_categories(names, vocabulary.categories)
            self._objects[int(identity)] = frozenset(names)

    def require(self, wanted: Collection[Id]) -> None:
        """Everything has been read already."""

    def ids(self) -> Collection[int]:
        return self._objects.keys()

    def objects(self, image: int) -> frozenset[str]:
        return self._objects[image]

    def describe(self) -> dict[str, Any]:
        """Name the file by its content."""
        return {"source": "file", "sha256": sha256_file(self._path)}


def sample_images(ids: Iterable[int], *, count: int, seed: int) -> list[int]:
    """Draw images by seed from ids in any order; the result is sorted."""
    pool = sorted(ids)
    return sorted(random.Random(seed).sample(pool, min(count, len(pool))))


def read_manifest(path: str | Path) -> list[int]:
    """Read image ids from a manifest, or from a JSON list of integers."""
    content = read_json(path)
    ids = content.get("ids") if isinstance(content, dict) else content
    if not isinstance(ids, list) or not all(type(identity) is int for identity in ids):
        raise InputError(
            f"{path} is not a manifest: expected a list of integer image ids, or one under 'ids'"
        )
    if len(set(ids)) != len(ids):
        raise InputError(f"{path} lists an image twice")
    return ids


def _check_categories(names: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise InputError(
            f"the ground truth has objects that are not in the synonym table: {', '.join(unknown[:5])}",
            hint="the table and the annotations do not belong together",
        )
