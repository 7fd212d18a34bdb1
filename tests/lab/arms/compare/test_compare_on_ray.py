"""A comparison by several workers, whose results come in any order: the files of one machine, also after a stop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints import picture
from reweigh.engines.answer import Answer
from reweigh.lab.arms.compare.methods import Method
from reweigh.lab.arms.compare.on_ray import worker_turns
from reweigh.lab.arms.compare.run import served_arms
from reweigh.lab.arms.experiment import Experiment
from reweigh.lab.runs.record import RESPONSES
from reweigh.lab.runs.run import Answered
from reweigh.lab.runs.task import Runs, Task
from shuffled import Shuffled
from toy_benchmark import Toy

METHODS = [
    Method("base", "Base", decoding={"decoder": "base"}),
    Method("dola", "DoLa", decoding={"decoder": "dola"}),
    Method("pai", "PAI", reason="it cannot be served"),
]


def turns(batch, names):
    """Every answer names what it depends on."""
    for name in names:
        texts = [f"{name} {record.id} {batch.seed} and so on" for record in batch.records]
        yield (
            name,
            Answered([Answer(text, (1,)) for text in texts], {"seconds": 1.0, "tokens": 1, "peak": None}),
        )


def experiment(runs, out, answerer):
    return Experiment(runs, served_arms(METHODS, runs), out / runs.task.name, rotate=True, turns=answerer)


@pytest.fixture(scope="module")
def benchmarks(tmp_path_factory):
    images = tmp_path_factory.mktemp("images")
    records = Toy(images).records()
    for record in records:
        picture(1).save(images / record.image)
    return [
        Runs(Task(Toy(images), records[:count], images, {"name": name}, {}), {"id": "m"}, batch_size=2)
        for name, count in (("toy", 7), ("other", 12))
    ]


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), workers=st.integers(1, 4), kept=st.integers(0, 7))
def test_any_order_gives_the_files_of_one_machine(benchmarks, tmp_path_factory, seed, workers, kept):
    folder = tmp_path_factory.mktemp("comparison")
    expected = {}
    for runs in benchmarks:
        alone = experiment(runs, folder / "alone", turns)
        assert [arm.name for arm in alone.arms] == ["base", "dola"]
        alone.answer(*alone.arms)
        for arm in alone.arms:
            expected[runs.task.name, arm.name] = (alone.out / arm.name / RESPONSES).read_bytes()
    begun = folder / "ray" / "toy" / "dola"
    benchmarks[0].open(begun, METHODS[1].decoding)
    if kept:
        (begun / RESPONSES).write_bytes(b"".join(expected["toy", "dola"].splitlines(keepends=True)[:kept]))
    crew = Shuffled(lambda task: dict(turns(*task)), workers, seed)
    for runs in benchmarks:
        made = experiment(runs, folder / "ray", worker_turns(crew, runs, METHODS, folder / "ray"))
        made.answer(*made.arms)
        for arm in made.arms:
            assert (made.out / arm.name / RESPONSES).read_bytes() == expected[runs.task.name, arm.name]
            noted = made.out / arm.name / "costs.jsonl"
            costs = noted.read_text().splitlines() if noted.exists() else []
            assert len(costs) >= (len(runs.task.records) - kept) // 2
