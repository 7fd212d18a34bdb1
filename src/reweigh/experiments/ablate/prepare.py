"""What an ablation needs before it answers: the table and beta of the full method, and the arms made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reweigh.decoding import operating_point
from reweigh.engines.transformers.pairing import pair
from reweigh.experiments.ablate.arms import Arm, FindReadout, make_arms, readout_of, registered_sets
from reweigh.experiments.ablate.study import observations_beside
from reweigh.families.anatomy import find_anatomy
from reweigh.runs.task import Runs
from reweigh.tables.table import ReferenceTable


@dataclass(frozen=True)
class Prepared:
    """The full method's table and beta, the arms, why some are left out, and sentences about the tokens they register."""

    table: ReferenceTable
    beta: float
    arms: Sequence[Arm]
    left_out: Mapping[str, str]
    sets: Sequence[str] = ()


def prepare(
    loaded: tuple[Any, Any],
    runs: Runs,
    kinds: Sequence[str],
    table: str,
    *,
    layer: int | None = None,
    beta: float | None = None,
    shuffles: int,
    readouts: Callable[[ReferenceTable], FindReadout] | None = None,
    force: bool = False,
) -> Prepared:
    """Find table and beta, and make the arms.

    Args:
        loaded: Model and processor.
        runs: How records are answered.
        kinds: Kinds of arms.
        table: Folder of the table, beside which observations may lie.
        shuffles: Permutations of the references.
        readouts: Registers readout arms from the calibration images of the table found; called only for such arms.
    """
    anatomy = find_anatomy(loaded[0])
    chosen, _ = pair(anatomy, loaded[1], table, layer=layer, force=force)
    wanted = any(readout_of(kind) for kind in kinds)
    register = readouts(chosen) if readouts is not None and wanted else None
    made, left_out = make_arms(
        kinds,
        chosen,
        records=len(runs.task.records),
        vocab_size=anatomy.vocab_size,
        observations=observations_beside(table),
        shuffles=shuffles,
        seed=runs.seed,
        readouts=register,
    )
    bound = operating_point(anatomy, chosen, beta).beta
    return Prepared(chosen, bound, made, left_out, registered_sets(kinds, chosen, register))
