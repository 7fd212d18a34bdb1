"""A random model, a table for it, and a few records of the embedded world to ask it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import twin
from checkpoints import VOCABULARY
from reweigh.images import read_image
from reweigh.lab.arms.ablate.arms import WORDS, Variant, make_variants
from reweigh.lab.arms.ablate.run import RecordEvidence
from reweigh.lab.runs.task import Runs, Task
from reweigh.lab.tasks.base import Record
from reweigh.lab.tasks.world import World
from reweigh.tables.table import ReferenceTable


@dataclass
class Setting:
    """What an arm is decoded with."""

    model: Any
    processor: Any
    table: ReferenceTable
    runs: Runs
    arms: dict[str, Variant]

    def pictures(self, records: list[Record]) -> list[Any]:
        return [read_image(self.runs.task.images / record.image) for record in records]

    def evidence(self) -> RecordEvidence:
        return RecordEvidence(self.model, self.processor, self.table, self.runs)


@pytest.fixture(scope="session")
def setting(checkpoint, tmp_path_factory) -> Setting:
    case = twin.case(checkpoint("llava"))
    folder = tmp_path_factory.mktemp("pictures")
    world = World(folder, scenes=5)
    records = [
        type(one)(id=one.id, image=one.image, prompt=one.prompt, max_new_tokens=7) for one in world.records()
    ]
    task = Task(world, records, folder, {"name": "world", "options": {}, "limit": None}, {})
    table = twin.table(VOCABULARY)
    made, _ = make_variants(
        list(WORDS),
        table,
        records=len(records),
        vocab_size=VOCABULARY,
        observations=None,
        shuffles=2,
        seed=7,
    )
    runs = Runs(task, {"id": "random"}, batch_size=2)
    return Setting(case.model, case.processor, table, runs, {arm.name: arm for arm in made})
