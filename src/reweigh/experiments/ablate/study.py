"""The ablation as a whole: the base and every arm on the same records and the same evidence, scored side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reweigh.calibration.result import MANIFEST, Calibration
from reweigh.experiments.ablate.arms import FULL, Arm
from reweigh.experiments.ablate.run import RecordEvidence, attach_arm, make_arm_ask, read_edits
from reweigh.experiments.ablate.table import BASE, Row
from reweigh.progress import bar
from reweigh.runs.model import make_ask, open_session
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
    kinds = {BASE: BASE, **{arm.name: arm.kind for arm in arms}}
    folders = {name: out / "runs" / name for name in kinds}
    done = sum(runs.done(folder) for folder in folders.values())
    total = len(folders) * len(runs.task.records)
    with bar("ablating", total=total, done=done, unit="answer") as progress:
        base = open_session(model, processor, BASE, {})
        ask = make_ask(base, template=runs.template)
        runs.answer(ask, folders[BASE], base.record(), progress=progress)
        for arm in arms:
            progress.set_description(arm.name)
            session = attach_arm(model, processor, arm, beta, force=force)
            ask = make_arm_ask(session, arm, evidence, folders[arm.name], template=runs.template)
            runs.answer(ask, folders[arm.name], session.record(), progress=progress)
    scored = {name: runs.score(folder) for name, folder in folders.items()}
    full = scored[FULL]
    return [Row.of(name, kind, scored[name], full, read_edits(folders[name])) for name, kind in kinds.items()]


def observations_beside(table: str | Path) -> Observations | None:
    """The observations kept in a calibration folder, which the table's folder is or lies in."""
    for folder in (Path(table), Path(table).parent):
        if (folder / MANIFEST).is_file():
            return Calibration.load(folder).observations
    return None
