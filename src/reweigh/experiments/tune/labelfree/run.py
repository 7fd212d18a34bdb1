"""A search without labels on loaded models: who answers, who verifies, whose object names count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.experiments.tune.grid import Grid
from reweigh.experiments.tune.labelfree.against import Against, hold_against_labels
from reweigh.experiments.tune.labelfree.arrays import Arrays
from reweigh.experiments.tune.labelfree.pictures import open_lexicon
from reweigh.experiments.tune.labelfree.study import tune_without_labels
from reweigh.experiments.tune.labelfree.verifier import ModelVerifier, Verifier
from reweigh.experiments.tune.search import BOUND
from reweigh.experiments.tune.study import answering, folder_of
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
    with answering(model, processor, grid, runs, out, cache=cache, force=force) as answer:
        return tune_without_labels(
            answer,
            runs.task,
            asked,
            words,
            out,
            layers=list(grid.tables),
            betas=grid.betas,
            bound=grid.bound,
        )


def against_labels(
    tuned: Tuned, runs: Runs, out: Path, *, bound: float = BOUND, draws: int, seed: int
) -> Against:
    """Score the runs of a finished search by labels, and hold its choice and those of worse verifiers against theirs."""
    if tuned.verified is None:
        raise InputError("the search was made with labels", hint="search without them")
    items = {key: runs.score(folder_of(out, key)).items for key in tuned.verified.points}
    return hold_against_labels(Arrays.of(tuned.verified, items), bound=bound, draws=draws, seed=seed)
