"""Decoding a variant: evidence is measured once for all variants and given to each as it needs it; edits are counted.

Greedy, as the paper's ablations are. Counts are noted by batch beside the answers, so that a stopped run keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from reweigh.calibration.result import MANIFEST, Calibration
from reweigh.decoding import ReweighSession, attach, operating_point
from reweigh.decoding.reweigh import ReWEIGH
from reweigh.engines.transformers.measure import pair
from reweigh.engines.transformers.session import end_tokens
from reweigh.errors import ReweighError
from reweigh.experiments.ablate.arms import (
    FULL,
    FindReadout,
    Variant,
    make_variants,
    readout_of,
    registered_sets,
    without_abstention,
)
from reweigh.experiments.ablate.report import BASE, COUNTED, edit_rows
from reweigh.experiments.experiment import Arm, Experiment, OpenArm, decoder_arm
from reweigh.families.anatomy import find_anatomy
from reweigh.method.evidence import Evidence
from reweigh.method.readouts import DMRR
from reweigh.method.trace import Recorded
from reweigh.results.frame import Frame
from reweigh.runs.run import Answered, Batch, batches, open_batch
from reweigh.runs.task import Runs
from reweigh.runtime.decoder import GREEDY
from reweigh.runtime.memory import EvidenceCache
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

EDITS = "edits.jsonl"


class RecordEvidence:
    """The evidence of every record over the whole vocabulary, measured in the record's batch.

    Ranks are summed as integers, so the part of a vector that an arm reads is bit for bit what the arm itself would
    have measured.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        table: ReferenceTable,
        runs: Runs,
        cache: EvidenceCache,
        *,
        force: bool = False,
    ) -> None:
        self._model, self._processor, self._cache, self._force = model, processor, cache, force
        self._every = without_abstention(table, find_anatomy(model).vocab_size)
        self._sessions: dict[str, ReweighSession] = {}
        self._runs = runs
        self._batch = {
            start + i: (start, records)
            for start, records in batches(runs.task.records, runs.batch_size)
            for i in range(len(records))
        }
        self._keys: dict[int, str] = {}

    def of(self, number: int, readout: str = DMRR) -> Evidence:
        """Return the evidence of one record under a readout."""
        session = self._session(readout)
        found = self._find(number, session)
        if found is None:
            self._measure(number, session)
            found = self._find(number, session)
        if found is None:
            raise ReweighError(
                f"the evidence of record {number} was measured, but the cache dropped it immediately"
            )
        return found

    def _session(self, readout: str) -> ReweighSession:
        """Return the session that measures a readout over the whole vocabulary."""
        if readout not in self._sessions:
            named = {} if readout == DMRR else {"readout": readout}
            table = replace(self._every, made_with={**self._every.made_with, **named})
            self._sessions[readout] = attach(
                self._model, self._processor, table=table, beta=0.0, cache=self._cache, force=self._force
            )
        return self._sessions[readout]

    def nothing(self) -> Evidence:
        """Return evidence of zero for every token."""
        deployed = self._session(DMRR).decoder.deployed
        return Evidence(
            layers=deployed.reader.layers,
            values=torch.zeros(1, deployed.lens.vocab_size),
            positions=(),
            patches=(),
            dtype=deployed.lens.dtype,
        )

    def _find(self, number: int, session: ReweighSession) -> Evidence | None:
        recall, reader = session.recall, session.decoder.deployed.reader
        if recall is None:
            return None
        if number not in self._keys:
            batch = self._open(number)
            inputs = session.prepare(batch.pictures, batch.prompts, template=self._runs.template)
            self._keys.update(enumerate(recall.keys(batch.pictures, inputs), start=batch.start))
        found = recall.find([self._keys[number]], reader)[0]
        return None if found is None else replace(found, tokens=None)  # all tokens, in their order

    def _measure(self, number: int, session: ReweighSession) -> None:
        batch = self._open(number)
        options: dict[str, Any] = {**GREEDY, "max_new_tokens": 1, "template": self._runs.template}
        session.answer(batch.pictures, batch.prompts, **options)

    def _open(self, number: int) -> Batch:
        """Open the batch of a record."""
        return open_batch(*self._batch[number], self._runs.task.images, self._runs.seed)


class Tally:
    """Counts candidate positions, edits and edits beyond the bound in one batch; a row counts until its end token."""

    def __init__(self, beta: float, ends: Sequence[int]) -> None:
        self.bound = beta
        self.ends = torch.tensor(list(ends), dtype=torch.int64)
        self._counts: torch.Tensor | None = None
        self._speaking: torch.Tensor | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What was counted."""
        counted = [0] * len(COUNTED) if self._counts is None else self._counts.tolist()
        return dict(zip(COUNTED, counted, strict=True))

    def record(self, recorded: Recorded) -> None:
        """Count one step."""
        if self._speaking is None:
            self._speaking = torch.ones(len(recorded.after), dtype=torch.bool, device=recorded.after.device)
        speaking = self._speaking if recorded.rows is None else self._speaking[recorded.rows]
        counted = recorded.candidates.keep & speaking[:, None]
        size = recorded.shifts.abs()
        found = (counted, (size != 0) & counted, (size > size.new_tensor(self.bound)) & counted)
        step = torch.stack([one.sum() for one in found])  # stays on the device: no step waits for it
        self._counts = step if self._counts is None else self._counts + step
        self._speaking = self._speaking & ~torch.isin(recorded.after, self.ends.to(recorded.after.device))


def attach_variant(
    model: Any, processor: Any, arm: Variant, beta: float, *, force: bool = False
) -> ReweighSession:
    """Tie an arm to a model, as ``attach`` ties the method."""
    own = beta * arm.factor
    decoder = ReWEIGH(find_anatomy(model), processor, table=arm.table, beta=own, force=force, clip=arm.clip)
    decoder.name, decoder.options = "reweigh", arm.record()
    return ReweighSession(model, processor, decoder)


def evidence_for(arm: Variant, evidence: RecordEvidence, number: int) -> Evidence:
    """Return the evidence that an arm is given for a record."""
    if arm.donors is None:
        return evidence.nothing()
    found = evidence.of(arm.donors[number], arm.table.readout)
    if arm.unit is None:
        return found
    unit = torch.full_like(found.values, torch.inf)  # a token that is not registered is never edited
    unit[:, torch.from_numpy(arm.unit.tokens)] = torch.from_numpy(arm.unit.references).to(unit.dtype)
    return replace(
        found, values=(found.values / unit).clamp_max(1.0)
    )  # nothing above its reference is edited


def variant_ask(
    session: ReweighSession, arm: Variant, evidence: RecordEvidence, *, template: str | None
) -> Callable[[Batch], Answered]:
    """Make the function that answers batches as the arm does and notes its edits."""

    def ask(batch: Batch) -> Answered:
        given = [evidence_for(arm, evidence, batch.start + i) for i in range(len(batch.records))]
        tally = Tally(session.beta, end_tokens(session.decoder.anatomy.language_model))
        options: dict[str, Any] = {**GREEDY, "max_new_tokens": batch.max_new_tokens, "template": template}
        with session.request(evidence=given, observer=tally):
            answers = session.answer(batch.pictures, batch.prompts, **options)
        return Answered(answers, tally.counts)

    return ask


def sum_edits(notes: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Sum the counts of all batches of a run."""
    return {name: sum(row[name] for row in notes) for name in COUNTED}


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
) -> Frame:
    """Answer the base and every variant under one bar into folders below ``out``, score them and count their edits."""
    evidence = RecordEvidence(model, processor, planned.table, runs, cache, force=force)

    def opened(variant: Variant) -> OpenArm:
        session = attach_variant(model, processor, variant, planned.beta, force=force)
        return OpenArm(session.record(), variant_ask(session, variant, evidence, template=runs.template))

    base = decoder_arm(BASE, (model, processor), BASE, {}, template=runs.template)
    edited = [Arm(one.name, partial(opened, one), EDITS) for one in planned.variants]
    made = Experiment(runs, [base, *edited], out / "runs", what="ablating")
    rows = [*made.run(FULL)]
    for arm in made.arms:
        edits = sum_edits(made.notes(arm)) if arm.notes else None
        rows += edit_rows({"benchmark": runs.task.name, "arm": arm.name}, edits, made.scored[arm.name].items)
    return Frame(rows)


def observations_beside(table: str | Path) -> Observations | None:
    """Read the observations of a calibration folder, which is the table's folder or its parent."""
    for folder in (Path(table), Path(table).parent):
        if (folder / MANIFEST).is_file():
            return Calibration.load(folder).observations
    return None
