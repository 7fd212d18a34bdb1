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

from reweigh.attached import Attached
from reweigh.calibration.result import Calibration
from reweigh.engines.pairing import pair
from reweigh.engines.session import tie
from reweigh.engines.transformers.answers import end_tokens
from reweigh.errors import InputError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.points import point_in_use
from reweigh.families.prompts import build_inputs
from reweigh.intervene import ReWEIGH
from reweigh.job import Job
from reweigh.lab.arms.ablate.arms import (
    FULL,
    WORDS,
    FindReadout,
    Variant,
    make_variants,
    readout_of,
    registered_sets,
)
from reweigh.lab.arms.ablate.report import BASE, COUNTED, edit_rows
from reweigh.lab.frame import Frame
from reweigh.lab.runs.task import Runs
from reweigh.lab.study import Arm, Batch, Call, Observer, Study, batches, decoder_arm, open_batch
from reweigh.measuring import measure
from reweigh.memory import Memory
from reweigh.method.evidence import Evidence
from reweigh.method.lens import CHUNK
from reweigh.method.readouts import DMRR
from reweigh.method.trace import Recorded
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable


class RecordEvidence:
    """The evidence of every record over the whole vocabulary, measured in the record's batch and kept in memory.

    Ranks are summed as integers, so the part of a vector that an arm reads is bit for bit what the arm itself would
    have measured.
    """

    def __init__(self, model: Any, processor: Any, table: ReferenceTable, runs: Runs) -> None:
        self._loaded, self._table, self._runs = (model, processor), table, runs
        self._memory = Memory(4 << 30)  # vectors of the whole vocabulary, which every arm reads
        self._batch = {
            start + i: (start, records)
            for start, records in batches(runs.task.records, runs.batch_size)
            for i in range(len(records))
        }

    def of(self, number: int, readout: str = DMRR) -> Evidence:
        """Return the evidence of one record under a readout."""
        found: Evidence | None = self._memory.get(f"{number} {readout}")
        if found is None:
            start, records = self._batch[number]
            batch = open_batch(start, records, self._runs.task.images, self._runs.seed)
            found = self._measure(batch, readout)[number - start]
        if found is None:
            raise InputError(
                f"the prompt of record {number} holds no image", hint="check the prompt template"
            )
        return found

    def _measure(self, batch: Batch, readout: str) -> list[Evidence | None]:
        inputs = build_inputs(*self._loaded, batch.pictures, batch.prompts, template=self._runs.template)
        made = self._table.about
        lens: dict[str, Any] = {"dtype": made.get("lens", "native"), "chunk": made.get("chunk", CHUNK)}
        measured = measure(self._loaded[0], inputs, [self._table.layer], readout=readout, **lens)
        found = [None if one is None else replace(one, values=one.values.cpu()) for one in measured]
        for number, one in enumerate(found, start=batch.start):
            if one is not None:
                self._memory.put(f"{number} {readout}", one, one.values.nbytes)
        return found


class Tally:
    """Counts edits and penalties beyond the bound in one batch, by candidate and by step; a row counts until its end token.

    A step has an edit if any of its candidates has one. A raised logit is an edit, but no penalty.
    """

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
        penalty = recorded.shifts
        edited, escaped = (penalty != 0) & counted, (penalty > penalty.new_tensor(self.bound)) & counted
        by_step = (speaking, edited.any(dim=-1), escaped.any(dim=-1))
        # stays on the device: no step waits for it
        step = torch.stack([one.sum() for one in (counted, edited, escaped, *by_step)])
        self._counts = step if self._counts is None else self._counts + step
        self._speaking = self._speaking & ~torch.isin(recorded.after, self.ends.to(recorded.after.device))


def attach_variant(model: Any, processor: Any, arm: Variant, beta: float, *, force: bool = False) -> Attached:
    """Tie an arm to a model, as ``attach`` ties the method."""
    own = beta * arm.factor
    decoder = ReWEIGH(find_anatomy(model), processor, table=arm.table, beta=own, force=force, clip=arm.clip)
    decoder.name, decoder.options = "reweigh", arm.record()
    session: Attached = tie(decoder)
    return session


FindEvidence = Callable[[int, str], Evidence]
"""The evidence of a record under a readout, over the whole vocabulary."""


def evidence_for(arm: Variant, session: Attached, find: FindEvidence, number: int) -> Evidence:
    """Return the evidence that an arm is given for a record."""
    if arm.blind:
        nothing = torch.zeros(session.decoder.reader.lens.rows)
        return as_evidence(nothing, arm.table.readout, session)
    donor = number if arm.donors is None else arm.donors[number]
    found = find(donor, arm.table.readout)
    if arm.unit is None:
        return found
    unit = torch.full_like(found.values, torch.inf)  # a token that is not registered is never edited
    unit[:, torch.from_numpy(arm.unit.tokens)] = torch.from_numpy(arm.unit.references).to(unit.dtype)
    own = (found.values / unit).clamp_max(1.0)  # nothing above its reference is edited
    return replace(found, values=own)


def as_evidence(vector: torch.Tensor, readout: str, session: Attached) -> Evidence:
    """Wrap a vector over the vocabulary as the evidence of one row."""
    reader = session.decoder.reader
    return Evidence(
        layers=reader.layers,
        values=vector[None],
        positions=(),
        patches=(),
        dtype=reader.lens.dtype,
        readout=readout,
    )


class EditTally(Observer):
    """Notes how many candidates a batch had, how many were edited, and how many beyond the bound."""

    def settings(self, call: Call) -> Mapping[str, Any]:
        """Have the session show every step to a new tally."""
        session = call.session
        self._tally = Tally(session.beta, end_tokens(session.decoder.anatomy.language_model))
        return {"observer": self._tally}

    def note(self, call: Call) -> Mapping[str, Any]:
        """Return the counts."""
        return self._tally.counts


def variant_arm(variant: Variant, open_variant: Callable[[Any], Any], find: FindEvidence) -> Arm:
    """Return a variant as an arm whose evidence is given and whose edits are counted."""

    def settings(session: Any, batch: Batch) -> Mapping[str, Any]:
        numbers = range(batch.start, batch.start + len(batch.records))
        return {"evidence": [evidence_for(variant, session, find, number) for number in numbers]}

    return Arm(variant.name, open_variant, WORDS.get(variant.kind, ""), (EditTally(),), settings)


def sum_edits(notes: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Sum the counts of all batches of a run."""
    return {name: sum(row[name] for row in notes) for name in COUNTED}


SHUFFLES = 10
"""Permutations of the references; the paper names no number."""


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
    readouts: Callable[[ReferenceTable], FindReadout] | None = None,
    force: bool = False,
) -> Plan:
    """Find table and beta, and make the variants.

    Args:
        loaded: Model and processor.
        runs: How records are answered.
        kinds: Kinds of variants.
        table: Folder of the table; observations may be kept beside it.
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
        vocab_size=anatomy.rows,
        observations=observations_beside(table),
        shuffles=SHUFFLES,
        seed=runs.seed,
        readouts=register,
    )
    bound = point_in_use(anatomy.family.name, len(anatomy.blocks), chosen, beta).beta
    return Plan(chosen, bound, made, left_out, registered_sets(kinds, chosen, register))


def ablate(
    model: Any,
    processor: Any,
    planned: Plan,
    runs: Runs,
    out: Path,
    *,
    force: bool = False,
) -> Frame:
    """Answer the base and every variant, score them and count their edits."""
    evidence = RecordEvidence(model, processor, planned.table, runs)
    edited = [
        variant_arm(one, partial(open_variant, one, planned.beta, force), evidence.of)
        for one in planned.variants
    ]
    study = Study([runs], [decoder_arm(BASE, BASE), *edited], out, reference=FULL, what="ablating")
    rows = [*study.run((model, processor))]
    for arm in study.arms:
        edits = sum_edits(study.notes(runs, arm)) if arm.observers else None
        items = study.score(runs, arm).items
        rows += edit_rows({"benchmark": runs.task.name, "arm": arm.name}, edits, items)
    about = study.score(runs, study.arms[0]).about
    return Frame(rows, {"benchmarks": {runs.task.name: about}})


def open_variant(variant: Variant, beta: float, force: bool, model: tuple[Any, Any]) -> Attached:
    """Tie a variant to a model and its processor."""
    return attach_variant(*model, variant, beta, force=force)


def observations_beside(table: str | Path) -> Observations | None:
    """Read the observations of a calibration folder, which is the table's folder or its parent."""
    for folder in (Path(table), Path(table).parent):
        if Job.is_in(folder):
            return Calibration.load(folder).observations
    return None
