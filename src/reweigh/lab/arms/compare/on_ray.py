"""Runs and comparisons on a cluster: each actor has every method and answers a batch with all that lack it, in turn.

So the methods' costs are measured side by side, each batch on one machine, and the answers equal those of a single machine.
The driver loads no model, keeps the answers and scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from reweigh.cluster import Cluster, Worker, ray_pool
from reweigh.errors import UnsupportedError
from reweigh.lab.arms.compare.methods import Method, make_method
from reweigh.lab.arms.compare.report import Comparison
from reweigh.lab.arms.compare.run import compare
from reweigh.lab.runs.model import describe_model
from reweigh.lab.runs.task import Runs
from reweigh.lab.study import Arm, Study
from reweigh.text import Template


def page_of(method: Method) -> dict[str, Any]:
    """Return what the driver needs to know about a method: everything but its session."""
    return {one.name: getattr(method, one.name) for one in fields(method) if one.name != "session"}


def open_answerer(
    *,
    name: str,
    load: Mapping[str, Any],
    called: str,
    methods: Mapping[str, Mapping[str, Any]],
    template: Template | None,
    timed: bool = True,
) -> Worker:
    """Open a worker that loads a model with transformers and answers batches with the methods named, in turn.

    ``timed`` says whether cost and fluency are noted.
    """
    from reweigh.families.load import load as load_model

    model, processor = load_model(name, **load)
    model.name_or_path = called
    rows = [make_method(method, model, processor, options) for method, options in methods.items()]
    arms = [row.arm() if timed else Arm(row.name, row.open) for row in rows if row.reason is None]
    opened = {arm.name: arm.opened((model, processor), template) for arm in arms}
    page = {"model": describe_model(model, processor), "methods": {row.name: page_of(row) for row in rows}}
    return page, lambda task: {name: opened[name].ask(task[0]) for name in task[1]}


def compare_on(
    cluster: Cluster,
    arguments: dict[str, Any],
    model: str,
    benchmarks: Sequence[Runs],
    out: Path,
    *,
    against: str | None = None,
    tell: Callable[[Sequence[Method]], None] = lambda _: None,
) -> Comparison:
    """Compare with the actors of a cluster; ``arguments`` are ``open_answerer``'s, ``tell`` receives what they serve.

    ``model`` of the benchmarks' runs is completed with what the actors say of it.
    """
    with ray_pool(cluster, open_answerer, arguments) as pool:
        methods = [Method(**page) for page in pool.described["methods"].values()]
        tell(methods)
        known = [replace(runs, model={**runs.model, **pool.described["model"]}) for runs in benchmarks]
        return compare(model, methods, known, out, against=against, workers=pool)


def answer_on(
    cluster: Cluster, arguments: dict[str, Any], runs: Runs, out: Path, *, shard: str = "1/1"
) -> Study:
    """Answer one benchmark with one decoder and the actors of a cluster, into ``out`` itself."""
    with ray_pool(cluster, open_answerer, {**arguments, "timed": False}) as pool:
        [page] = pool.described["methods"].values()
        method = Method(**page)
        if method.reason is not None:
            raise UnsupportedError(method.reason)
        known = replace(runs, model={**runs.model, **pool.described["model"]})
        arm = Arm(method.name, method.open, method.title)
        study = Study([known], [arm], out, reference=None, flat=True, shard=shard, workers=pool)
        study.answer(known, study.arms)
        return study
