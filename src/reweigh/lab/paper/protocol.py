"""The paper's settings, read from ``protocol.json``: models, image sets, searches, arms, and what the paper leaves open.

Every command that reproduces a part of the paper takes its numbers from here. The image sets are drawn from one folder of
MS COCO by seed; no two sets that the paper keeps apart share an image.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import read_json
from reweigh.lab.tasks.coco import Coco

FILE = Path(__file__).with_name("protocol.json")


@dataclass(frozen=True, kw_only=True)
class PaperModel:
    """One of the paper's models.

    Attributes:
        checkpoint: The checkpoint as the paper names it.
        hub: Its repository on the Hub for transformers; None if there is none.
        backbone: Its language model.
        blocks: Number of decoder blocks.
        layers: The 0-based blocks that are calibrated and searched.
        layer: The published layer.
        beta: The published beta.
        betas: The betas of its search, if they are not the usual ones.
        reuses: The model whose beta and distance from the last block it takes instead of a search.
        dtype: What the paper runs it in, if it says so.
        repetition_penalty: That of the checkpoint.
        native: Rows of the head that are ranked, where the paper fixes them.
        note: What else one must know to load it.
    """

    checkpoint: str
    hub: str | None
    backbone: str
    blocks: int
    layers: Sequence[int]
    layer: int
    beta: float
    betas: Sequence[float] = ()
    reuses: str | None = None
    dtype: str | None = None
    repetition_penalty: float = 1.0
    native: int | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """A set of COCO images.

    Attributes:
        split: The split that it is drawn from.
        count: How many images.
        seed: Seed of the draw.
        without: Sets whose images are left out.
        part_of: The set whose first images it is, after leaving out ``without``.
        extends: The set that it continues with the same random stream.
        ours: What of it the paper does not say.
    """

    split: str
    count: int
    seed: int | None = None
    without: Sequence[str] = ()
    part_of: str | None = None
    extends: str | None = None
    ours: str | None = None


@dataclass(frozen=True)
class Protocol:
    """The paper's settings; ``settings`` holds the sections of the file that have no field of their own."""

    settings: Mapping[str, Any]

    @cached_property
    def models(self) -> dict[str, PaperModel]:
        """The paper's models by name."""
        return {name: PaperModel(**one) for name, one in self.settings["models"].items()}

    @cached_property
    def images(self) -> dict[str, ImageSet]:
        """The image sets by name."""
        return {name: ImageSet(**one) for name, one in self.settings["images"].items()}

    def __getitem__(self, section: str) -> Any:
        return self.settings[section]

    def model(self, name: str) -> tuple[str, PaperModel] | None:
        """Return the paper's model that a checkpoint is, by its name in the paper, on the Hub or in a folder."""
        wanted = name.rstrip("/").lower()
        for title, one in self.models.items():
            known = {title.lower(), one.checkpoint.lower(), (one.hub or title).lower()}
            if wanted in known or wanted.rpartition("/")[2] in {each.rpartition("/")[2] for each in known}:
                return title, one
        return None


@cache
def protocol() -> Protocol:
    """Read the paper's settings."""
    return Protocol(read_json(FILE))


class Images:
    """Image sets drawn from a folder of MS COCO.

    Args:
        coco: The folder with ``train2014``, ``val2014`` and the annotations.
        limit: Draw at most so many images for each set, for a trial.
    """

    def __init__(self, coco: Path, limit: int | None = None) -> None:
        self.coco, self.limit = coco, limit
        self._known: dict[str, list[int]] = {}

    def ids(self, name: str) -> list[int]:
        """Return the ids of a set: sorted, except that a set that extends another begins with that one."""
        if name not in self._known:
            self._known[name] = self._draw(protocol().images[name])
        return self._known[name]

    def paths(self, name: str) -> list[Path]:
        """Return the files of a set."""
        from reweigh.lab.runs.record import find_image

        files = self._files(protocol().images[name].split)
        return [find_image(self.coco, files[identity]).resolve() for identity in self.ids(name)]

    def _draw(self, wanted: ImageSet) -> list[int]:
        if wanted.extends is not None:
            first = self.ids(wanted.extends)
            base = protocol().images[wanted.extends]
            stream = random.Random(base.seed)
            pool = self._pool(base)
            stream.sample(pool, len(first))  # what the first set has drawn
            rest = sorted(set(pool) - set(first))
            more = self._most(wanted.count - base.count, rest)
            return first + sorted(stream.sample(rest, more))
        pool = self._pool(wanted)
        count = self._most(wanted.count, pool)
        return pool[:count] if wanted.part_of else sorted(random.Random(wanted.seed).sample(pool, count))

    def _pool(self, wanted: ImageSet) -> list[int]:
        inside = sorted(self._files(wanted.split)) if wanted.part_of is None else self.ids(wanted.part_of)
        out = {identity for name in wanted.without for identity in self.ids(name)}
        found = [identity for identity in inside if identity not in out]
        if not found:
            raise InputError(
                f"{self.coco} has no image of {wanted.split} left beside {' and '.join(wanted.without)}",
                hint="use all images of the split",
            )
        return found

    def _most(self, count: int, pool: Collection[int]) -> int:
        return min(count, len(pool), self.limit or count)

    def _files(self, split: str) -> dict[int, str]:
        kind = split.removesuffix("2014")
        return self._read(kind).image_file[kind]

    @cache  # noqa: B019  one folder for as long as the sets are drawn
    def _read(self, kind: str) -> Coco:
        return Coco(self.coco, split=kind)
