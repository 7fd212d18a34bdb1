"""A search without labels on loaded models: who answers, who verifies, whose object names count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reweigh.experiments.tune.grid import Grid
from reweigh.experiments.tune.labelfree.pictures import open_lexicon
from reweigh.experiments.tune.labelfree.study import tune_without_labels
from reweigh.experiments.tune.labelfree.verifier import ModelVerifier, Verifier
from reweigh.experiments.tune.study import answering
from reweigh.experiments.tune.tuned import Tuned
from reweigh.runs.task import Runs
from reweigh.runtime.memory import EvidenceCache


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
    cache: EvidenceCache,
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
    with answering(model, processor, grid, runs, out, cache=cache, force=force) as (made, answer):
        return tune_without_labels(
            lambda layer, beta: made.out / answer(layer, beta).name,
            runs.task,
            asked,
            words,
            out,
            layers=list(grid.tables),
            betas=grid.betas,
            bound=grid.bound,
        )
