"""The ablation as a whole: the table and beta of the full method, its variants, and all of them on the same records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from reweigh.calibration.result import MANIFEST, Calibration
from reweigh.decoding import operating_point
from reweigh.engines.transformers.pairing import pair
from reweigh.experiments.ablate.arms import (
    FULL,
    FindReadout,
    Variant,
    make_variants,
    readout_of,
    registered_sets,
)
from reweigh.experiments.ablate.report import BASE, ArmResult
from reweigh.experiments.ablate.run import EDITS, RecordEvidence, attach_variant, sum_edits, variant_ask
from reweigh.experiments.experiment import Arm, Experiment, OpenArm, decoder_arm
from reweigh.families.anatomy import find_anatomy
from reweigh.runs.task import Runs
from reweigh.runtime.memory import EvidenceCache
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

SHUFFLES = 10
"""Permutations of the references, as in the paper."""


@dataclass(frozen=True)
class Plan:
    """What an ablation will run.

    Attributes:
        table: The full method's table.
        beta: Its beta.
        variants: The full method, and what is compared with it.
        left_out: Why some kinds of variants cannot be run.
        sets: Sentences about the tokens that readout arms register.
    """

    table: ReferenceTable
    beta: float
    variants: Sequence[Variant]
    left_out: Mapping[str, str]
    sets: Sequence[str] = ()


def plan(
    loaded: tuple[Any, Any],
    runs: Runs,
    kinds: Sequence[str],
    table: str,
    *,
    layer: int | None = None,
    beta: float | None = None,
    shuffles: int = SHUFFLES,
    readouts: Callable[[ReferenceTable], FindReadout] | None = None,
    force: bool = False,
) -> Plan:
    """Find table and beta, and make the variants.

    Args:
        loaded: Model and processor.
        runs: How records are answered.
        kinds: Kinds of variants.
        table: Folder of the table; observations may be kept beside it.
        shuffles: Permutations of the references.
        readouts: Registers readout arms from the calibration images of the table; called only if there are such arms.
    """
    anatomy = find_anatomy(loaded[0])
    chosen, _ = pair(anatomy, loaded[1], table, layer=layer, force=force)
    wanted = any(readout_of(kind) for kind in kinds)
    register = readouts(chosen) if readouts is not None and wanted else None
    made, left_out = make_variants(
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
    return Plan(chosen, bound, made, left_out, registered_sets(kinds, chosen, register))


def ablate(
    model: Any,
    processor: Any,
    planned: Plan,
    runs: Runs,
    out: Path,
    *,
    cache: EvidenceCache,
    force: bool = False,
) -> list[ArmResult]:
    """Answer the base and every variant under one bar into folders below ``out``, and score them."""
    evidence = RecordEvidence(model, processor, planned.table, runs, cache, force=force)

    def opened(variant: Variant) -> OpenArm:
        session = attach_variant(model, processor, variant, planned.beta, force=force)
        return OpenArm(session.record(), variant_ask(session, variant, evidence, template=runs.template))

    kinds = {BASE: BASE, **{one.name: one.kind for one in planned.variants}}
    base = decoder_arm(BASE, model, processor, BASE, {}, template=runs.template)
    edited = [Arm(one.name, one.name, partial(opened, one), EDITS) for one in planned.variants]
    made = Experiment(runs, [base, *edited], out / "runs", what="ablating")
    made.run()
    edits = {arm.name: sum_edits(made.notes(arm)) if arm.notes else None for arm in made.arms}
    full = made.scored[FULL]
    return [ArmResult.of(name, kind, made.scored[name], full, edits[name]) for name, kind in kinds.items()]


def observations_beside(table: str | Path) -> Observations | None:
    """The observations kept in a calibration folder, which is the table's folder or its parent."""
    for folder in (Path(table), Path(table).parent):
        if (folder / MANIFEST).is_file():
            return Calibration.load(folder).observations
    return None
