"""The AMBER score: half of what the descriptions do not hallucinate, half the F1 of the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reweigh.benchmarks.amber import discriminative, generative
from reweigh.benchmarks.base import Item
from reweigh.benchmarks.bootstrap import Array, intervals
from reweigh.errors import InputError
from reweigh.estimate import Estimate

_REASON = "it needs mentions in descriptions and answers to questions whose truth is no"


def require_halves(first: str, second: str) -> None:
    """Refuse runs that are not of the generative and the discriminative half, in this order."""
    halves = (generative.AMBERGenerative.name, discriminative.AMBERDiscriminative.name)
    if (first, second) != halves:
        raise InputError(f"these are runs of {first} and {second}", hint="give the generative run first")


def amber_score(descriptions: Sequence[Item], answers: Sequence[Item]) -> Estimate:
    """Compute ((100 - CHAIR) + F1) / 2 unrounded, drawing the same images for both halves."""
    return intervals([*descriptions, *answers], _figures, reasons={"amber_score": _REASON})["amber_score"]


def _figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    chair = generative.figures(counts)["chair"]
    f1 = discriminative.figures(counts)["f1"]
    return {"amber_score": ((100 - chair) + f1) / 2}
