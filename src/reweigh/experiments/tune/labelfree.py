"""Choosing layer and beta without labels: a verifier's yes and no stand for what is in each picture.

Experimental. All pictures are described at every point; every object that any description mentions is asked about once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Benchmark, Record, Summary
from reweigh.benchmarks.bootstrap import Array
from reweigh.benchmarks.chair.metrics import figures, summarize_metrics
from reweigh.errors import InputError
from reweigh.experiments.tune.run import Grid, answering
from reweigh.experiments.tune.search import BASE, Tuned, Where, search
from reweigh.experiments.tune.verdicts import Asking, Mentions, known_absents, pools, pseudo_items, trust
from reweigh.experiments.tune.verifier import ModelVerifier, Verifier
from reweigh.images import list_images
from reweigh.runs.results import Scored
from reweigh.runs.task import Runs, Task
from reweigh.text import DESCRIBE


class Pictures(Benchmark):
    """A folder of pictures to describe; it has no metrics."""

    name = "pictures"

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """Ask for one description of each picture, by file name."""
        paths = list_images(self.data_dir)[:limit]
        names = [path.relative_to(self.data_dir).as_posix() for path in paths]
        return [Record(id=name, image=name, prompt=DESCRIBE, max_new_tokens=512) for name in names]

    @staticmethod
    def figures(counts: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return nothing: there is nothing to score against."""
        return {}


def open_pictures(folder: Path, *, limit: int | None = None) -> Task:
    """Open the pictures of a folder as a task."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="--pictures needs a folder of images")
    bench = Pictures(folder)
    metadata: dict[str, Any] = {"name": bench.name, "options": {}, "limit": limit, "shard": "1/1"}
    return Task(bench, bench.records(limit=limit), folder, metadata, {"images": str(folder.resolve())})


def open_lexicon(name: str, data: Path | None = None) -> Lexicon:
    """Find objects in texts as a benchmark does: the embedded world's names, CHAIR's synonyms, or a plugin's own."""
    from reweigh.benchmarks.open import open_benchmark

    return open_benchmark(name, data).objects


Describe = Callable[[Where], Sequence[str]]
"""Describes all pictures at a layer and beta; without a layer, with the base model."""
Lexicon = Callable[[str], Sequence[str]]
"""The objects that a text mentions, repeats kept."""


def tune_without_labels(
    describe: Describe, task: Task, verifier: Verifier, lexicon: Lexicon, out: Path, **grid: Any
) -> Tuned:
    """Search with a verifier's verdicts on every mentioned object in place of labels.

    Args:
        describe: Describes all pictures at one point.
        task: The pictures.
        verifier: Who affirms or denies.
        lexicon: Finds the objects a text mentions.
        out: Folder for the verdicts.
        grid: Layers, betas and bound of the search.
    """
    asking = Asking(verifier, task, out)
    said: dict[Where, Mentions] = {}

    def score(points: Sequence[Where]) -> Mapping[Where, Scored]:
        said.update({where: [Counter(lexicon(text)) for text in describe(where)] for where in points})
        pool = pools(said)
        asking.ask(pool)
        scored = {}
        for where, mentions in said.items():
            items = pseudo_items(task.records, mentions, pool, asking.affirmed)
            summary = Summary.of(items, benchmark=task.name, metrics=summarize_metrics(items))
            scored[where] = Scored(items, summary)
        if scored[BASE].summary.metrics["f1"].value is None:
            raise InputError(
                "the base's descriptions mention no object that the verifier affirms",
                hint="use pictures of objects that the lexicon knows, or another verifier",
            )
        return scored

    tuned = search(score, figures, task.name, **grid)
    absents = known_absents(pools(said))
    asking.ask([set(names) for names in absents])
    trusted = trust(said, absents, asking.affirmed, verifier.describe())
    chosen = tuned.chosen if trusted.refusal() is None else None
    return replace(tuned, chosen=chosen, trust=trusted)


def tune_free(
    model: Any,
    processor: Any,
    grid: Grid,
    runs: Runs,
    out: Path,
    *,
    lexicon: str,
    data: Path | None = None,
    verifier: Verifier | None = None,
    force: bool = False,
) -> Tuned:
    """Choose layer and beta by a verifier's yes and no.

    Args:
        lexicon: ``world`` or ``chair``: whose object names are looked for.
        data: Folder of CHAIR's files.
        verifier: Who affirms or denies; the model itself if not given.
    """
    words = open_lexicon(lexicon, data)
    name = str(runs.model.get("id", ""))
    asked = verifier or ModelVerifier(model, processor, template=runs.template, name=name)
    with answering(model, processor, grid, runs, out, force=force) as (made, answer):
        return tune_without_labels(
            lambda where: made.texts(answer(where)), runs.task, asked, words, out, **grid.options
        )
