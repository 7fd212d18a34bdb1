"""CHAIR on the embedded world: a closed vocabulary finds the mentions, the scene itself is the ground truth.

Needs no data files, no language toolkit and no network.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from reweigh.errors import InputError
from reweigh.lab.tasks.base import Benchmark, Id, Item, Record, Response
from reweigh.lab.tasks.chair.metrics import METRICS, caption_item, figures
from reweigh.text import DESCRIBE
from reweigh.world.pictures import draw
from reweigh.world.scenes import Scene, scenes
from reweigh.world.vocabulary import mentions

MAX_NEW_TOKENS = 128
SCENES = 500


class World(Benchmark):
    """Object hallucination in descriptions of drawn scenes.

    Args:
        data_dir: Folder that the pictures are drawn into.
        split: Which scenes: evaluation, or tuning for choices.
        scenes: How many.
        scene_seed: Which series of scenes.
    """

    name = "world"
    title = "CHAIR on the embedded world"
    draws_images = True
    metrics = METRICS
    tuning_options: ClassVar[Mapping[str, Any]] = {"split": "tuning", "scenes": 300}
    figures = staticmethod(figures)

    def __init__(
        self,
        data_dir: str | Path = ".",
        *,
        split: str = "evaluation",
        scenes: int = SCENES,
        scene_seed: int = 0,
    ) -> None:
        for name, value, least in (("scenes", scenes, 1), ("scene_seed", scene_seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} cannot be {value!r}", hint=f"give a whole number, {least} or more")
        super().__init__(Path(data_dir))
        self.split = split
        self.count = scenes
        self.scene_seed = scene_seed

    def scenes(self, limit: int | None = None) -> list[Scene]:
        """Return the scenes."""
        return list(
            scenes(self.split, self.count if limit is None else min(limit, self.count), self.scene_seed)
        )

    @cached_property
    def _known(self) -> dict[str, Scene]:
        """The scenes by id; cached, since studies score answers one by one."""
        return {scene.id: scene for scene in self.scenes()}

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """Draw the pictures into the data folder and list the prompts."""
        return [
            Record(
                id=scene.id,
                image=draw(scene, self.data_dir).name,
                prompt=DESCRIBE,
                max_new_tokens=MAX_NEW_TOKENS,
            )
            for scene in self.scenes(limit)
        ]

    def objects(self, text: str) -> list[str]:
        return [name for *_, name in mentions(text)]

    def known_ids(self) -> Collection[Id]:
        return self._known.keys()

    def score_response(self, response: Response) -> Item:
        return score_scene(self._known[str(response.id)], response.text)

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        return {"variant": "closed vocabulary", "split": self.split, "scene_seed": self.scene_seed}


def score_scene(scene: Scene, text: str) -> Item:
    """Count one description, and keep its mentions with their spans in the text."""
    found = [(word, name, start, end) for start, end, word, name in mentions(text)]
    return caption_item(scene.id, text, found, scene.objects)
