"""The ablation as a whole: the base and every arm on the same records and the same evidence, scored side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reweigh.calibration.result import MANIFEST, Calibration
from reweigh.experiments import experiment
from reweigh.experiments.ablate.arms import FULL, Arm
from reweigh.experiments.ablate.run import EDITS, RecordEvidence, attach_arm, make_arm_ask, sum_edits
from reweigh.experiments.ablate.table import BASE, Row
from reweigh.experiments.experiment import OpenArm
from reweigh.runs.task import Runs
from reweigh.runtime.memory import EvidenceCache
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable


def ablate(
    model: Any,
    processor: Any,
    arms: Sequence[Arm],
    table: ReferenceTable,
    runs: Runs,
    out: Path,
    *,
    beta: float,
    cache: EvidenceCache,
    force: bool = False,
) -> list[Row]:
    """Answer the base and every arm under one bar into folders below ``out``, and score them."""
    evidence = RecordEvidence(model, processor, table, runs, cache, force=force)

    def opened(arm: Arm) -> OpenArm:
        session = attach_arm(model, processor, arm, beta, force=force)
        return OpenArm(session.record(), make_arm_ask(session, arm, evidence, template=runs.template))

    kinds = {BASE: BASE, **{arm.name: arm.kind for arm in arms}}
    base = experiment.decoder_arm(BASE, model, processor, BASE, {}, template=runs.template)
    edited = [experiment.Arm(arm.name, arm.name, partial(opened, arm), EDITS) for arm in arms]
    made = experiment.Experiment(runs, [base, *edited], out / "runs", what="ablating")
    made.run()
    edits = {arm.name: sum_edits(made.notes(arm)) if arm.notes else None for arm in made.arms}
    full = made.scored[FULL]
    return [Row.of(name, kind, made.scored[name], full, edits[name]) for name, kind in kinds.items()]


def observations_beside(table: str | Path) -> Observations | None:
    """The observations kept in a calibration folder, which the table's folder is or lies in."""
    for folder in (Path(table), Path(table).parent):
        if (folder / MANIFEST).is_file():
            return Calibration.load(folder).observations
    return None
