"""A comparison on a cluster: each actor has every method and answers a batch with all of them in turn.

So the methods' costs are measured side by side, each batch on one machine, and the answers equal those of a single machine.
The driver loads no model, writes in the order of the manifest and scores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Record
from reweigh.cluster import Cluster, Pool, by_number, ray_pool
from reweigh.experiments.compare.methods import Method, make_method
from reweigh.experiments.compare.report import Comparison
from reweigh.experiments.compare.study import compare, served_arms
from reweigh.experiments.experiment import in_turns
from reweigh.runs.run import Answered, Batch, Turns, due, open_batch
from reweigh.runs.task import Runs

Task = tuple[Batch, list[str]]
"""A batch, and the methods that are to answer it."""

Due = tuple[Runs, int, list[Record], list[str]]
"""The same before its pictures are opened: the run, where the batch starts, its records, and the methods."""


class Comparer:
    """Answers batches with several methods inside an actor."""

    def __init__(self, about: Mapping[str, Any], methods: Sequence[Method], turns: Turns) -> None:
        self.page = {"model": dict(about), "methods": {method.name: page_of(method) for method in methods}}
        self.turns = turns

    def describe(self) -> dict[str, Any]:
        """Return what the runs' records keep of the model and of each method."""
        return self.page

    def work(self, task: Task) -> dict[str, Answered]:
        """Answer one batch with the methods named, in turn."""
        return dict(self.turns(*task))


def page_of(method: Method) -> dict[str, Any]:
    """Return what the driver has to know of a method: everything but its session."""
    return {one.name: getattr(method, one.name) for one in fields(method) if one.name != "session"}


def comparer(
    *,
    name: str,
    load: Mapping[str, Any],
    called: str,
    methods: Mapping[str, Mapping[str, Any]],
    template: str | None,
    where: str,
) -> Comparer:
    """Make a worker that loads a model with transformers and ties every method to it.

    ``where`` is the folder the command was started in: a file that an option names means the same here.
    """
    from reweigh.families.load import load as load_model
    from reweigh.runs.model import describe_model

    if Path(where).is_dir():
        os.chdir(where)
    model, processor = load_model(name, **load)
    model.name_or_path = called
    rows = [make_method(method, model, processor, options) for method, options in methods.items()]
    turns = in_turns({row.name: row.asker(template) for row in rows})
    return Comparer(describe_model(model, processor), rows, turns)


def compare_on(
    cluster: Cluster,
    arguments: dict[str, Any],
    model: str,
    benchmarks: Sequence[Runs],
    out: Path,
    *,
    tell: Callable[[Sequence[Method]], None] = lambda _: None,
) -> Comparison:
    """Compare with the actors of a cluster; ``arguments`` are ``comparer``'s, ``tell`` receives what they serve.

    ``model`` of the benchmarks' runs is completed with what the actors say of it.
    """
    with ray_pool(cluster, comparer, arguments) as pool:
        methods = [Method(**page) for page in pool.described["methods"].values()]
        tell(methods)
        known = [replace(runs, model={**runs.model, **pool.described["model"]}) for runs in benchmarks]
        return compare(model, methods, known, out, turns_of=worker_turns(pool, Waiting(known, methods, out)))


class Waiting:
    """The numbered batches of all benchmarks that some methods have not answered; each is opened when it is taken."""

    def __init__(self, benchmarks: Sequence[Runs], methods: Sequence[Method], out: Path) -> None:
        self.number: dict[tuple[str, int], int] = {}
        self.due: list[Due] = []
        for runs in benchmarks:
            done = {}
            for arm in served_arms(methods, runs):
                folder = out / runs.task.name / arm.name
                runs.open(folder, arm.open().decoding)
                done[arm.name] = len(runs.folder(folder).rows)
            for start, part, names in due(runs.task.records, runs.batch_size, done):
                self.number[runs.task.name, start] = len(self.due)
                self.due.append((runs, start, part, names))

    def __iter__(self) -> Iterator[tuple[int, Task]]:
        for number, (runs, start, part, names) in enumerate(self.due):
            yield number, (open_batch(start, part, runs.task.images, runs.seed), names)


def worker_turns(workers: Pool, waiting: Waiting) -> Callable[[Runs], Turns]:
    """Have workers answer: batches are taken in their order from results that come in any order."""
    take = by_number(workers.unordered(waiting))

    def turns_of(runs: Runs) -> Turns:
        return lambda batch, _: take(waiting.number[runs.task.name, batch.start]).items()

    return turns_of
