"""A random model and a few scenes, read into a study corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import twin
from checkpoints import VOCABULARY
from reweigh.lab.paper.corpus.make import ImageSet, make_corpus
from reweigh.lab.paper.corpus.store import StudyCorpus
from reweigh.lab.runs.task import Task
from reweigh.lab.tasks.world import World
from reweigh.tables.table import ReferenceTable

SEED, NEW = 11, 7


@dataclass
class Pass:
    """How a corpus is made in these tests."""

    model: Any
    processor: Any
    images: ImageSet
    table: ReferenceTable
    task: Task

    def make(self, folder: Path, **options: Any) -> StudyCorpus:
        given = {"table": self.table, "seed": SEED, "batch_size": 2, **options}
        return make_corpus(self.model, self.processor, self.images, folder, **given)


@pytest.fixture(scope="session")
def passing(checkpoint, tmp_path_factory) -> Pass:
    case = twin.case(checkpoint("llava"))
    folder = tmp_path_factory.mktemp("pictures")
    world = World(folder, scenes=5)
    records = [
        type(one)(id=one.id, image=one.image, prompt=one.prompt, max_new_tokens=NEW)
        for one in world.records()
    ]
    task = Task(world, records, folder, {"name": "world", "options": {}, "limit": None, "shard": "1/1"}, {})
    return Pass(case.model, case.processor, ImageSet.of_task(task), twin.table(VOCABULARY), task)


@pytest.fixture(scope="session")
def corpus(passing, tmp_path_factory) -> StudyCorpus:
    return passing.make(tmp_path_factory.mktemp("study") / "corpus")
