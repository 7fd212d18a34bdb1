"""A comparison on a cluster: each actor has every method and answers a batch with all of them in turn.

So the methods' costs are measured side by side, each batch on one machine, and the answers equal those of a single machine.
The driver loads no model, writes in the order of the manifest and scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from reweigh.cluster import Cluster, Pool, Worker, ray_pool
from reweigh.lab.arms.compare.methods import Method, make_method
from reweigh.lab.arms.compare.report import Comparison
from reweigh.lab.arms.compare.run import compare, served_arms
from reweigh.lab.arms.experiment import in_turns
from reweigh.lab.runs.model import ask_workers, describe_model
from reweigh.lab.runs.run import Turns
from reweigh.lab.runs.task import Runs
from reweigh.text import Template


def page_of(method: Method) -> dict[str, Any]:
    """Return what the driver needs to know about a method: everything but its session."""
    return {one.name: getattr(method, one.name) for one in fields(method) if one.name != "session"}


def open_comparer(
    *,
    name: str,
    load: Mapping[str, Any],
    called: str,
    methods: Mapping[str, Mapping[str, Any]],
    template: Template | None,
) -> Worker:
    """Open a worker that loads a model with transformers and answers batches with the methods named, in turn."""
    from reweigh.families.load import load as load_model

    model, processor = load_model(name, **load)
    model.name_or_path = called
    rows = [make_method(method, model, processor, options) for method, options in methods.items()]
    turns = in_turns({row.name: row.asker(template) for row in rows})
    page = {"model": describe_model(model, processor), "methods": {row.name: page_of(row) for row in rows}}
    return page, lambda task: dict(turns(*task))


def compare_on(
    cluster: Cluster,
    arguments: dict[str, Any],
    model: str,
    benchmarks: Sequence[Runs],
    out: Path,
    *,
    tell: Callable[[Sequence[Method]], None] = lambda _: None,
) -> Comparison:
    """Compare with the actors of a cluster; ``arguments`` are ``open_comparer``'s, ``tell`` receives what they serve.

    ``model`` of the benchmarks' runs is completed with what the actors say of it.
    """
    with ray_pool(cluster, open_comparer, arguments) as pool:
        methods = [Method(**page) for page in pool.described["methods"].values()]
        tell(methods)
        known = [replace(runs, model={**runs.model, **pool.described["model"]}) for runs in benchmarks]
        return compare(
            model, methods, known, out, turns_of=lambda runs: worker_turns(pool, runs, methods, out)
        )


def worker_turns(workers: Pool, runs: Runs, methods: Sequence[Method], out: Path) -> Turns:
    """Have workers answer the batches that some methods still lack."""
    served = served_arms(methods, runs)
    take = ask_workers(
        workers, runs, {out / runs.task.name / arm.name: arm.open().decoding for arm in served}
    )
    return lambda batch, _: take(batch).items()
