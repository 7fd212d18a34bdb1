"""The AMBER score of two scored runs."""

from __future__ import annotations

from pathlib import Path

from reweigh.benchmarks.amber.score import amber_score, require_halves
from reweigh.estimate import Estimate
from reweigh.runs.results import read_scored


def score_runs(generative: Path, discriminative: Path) -> Estimate:
    """Compute ((100 - CHAIR) + F1) / 2 from scored run folders of both halves of AMBER.

    Raises:
        InputError: The folders are not scored runs of the two halves, in this order.
    """
    descriptions, answers = read_scored(generative), read_scored(discriminative)
    require_halves(descriptions.benchmark, answers.benchmark)
    return amber_score(descriptions.items, answers.items)
