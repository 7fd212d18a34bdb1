"""Decoding an arm: evidence measured once for all arms, given to each as the arm wants it, edits counted as they come.

Greedy, as the paper's ablations are. Counts are kept by batch beside the answers, so that a stopped run keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reweigh.artifacts import append_jsonl, read_jsonl
from reweigh.benchmarks.base import Record
from reweigh.decoders.base import GREEDY
from reweigh.decoders.reweigh import ReweighAttachment, attach
from reweigh.engines.cache import EvidenceCache
from reweigh.engines.transformers.pairing import pair
from reweigh.engines.transformers.session import prepare
from reweigh.errors import ReweighError
from reweigh.families.anatomy import find_anatomy
from reweigh.images import read_image
from reweigh.method.intervene.trace import Recorded
from reweigh.method.measure.evidence import Evidence
from reweigh.method.register.table import ReferenceTable
from reweigh.runs.describer import end_tokens
from reweigh.runs.record import find_image
from reweigh.runs.run import Ask, batches
from reweigh.runs.task import Runs
from reweigh.studies.ablate.arms import Arm, without_abstention

if TYPE_CHECKING:
    from PIL.Image import Image

EDITS = "edits.jsonl"
COUNTED = ("candidates", "edits", "escapes")


class Witness:
    """The evidence of every record over the whole vocabulary, measured in the batch in which the record is asked.

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
        anatomy = find_anatomy(model)
        every = without_abstention(table, anatomy.vocab_size)
        self._attached = attach(model, processor, table=every, beta=0.0, cache=cache, force=force)
        self._runs = runs
        self._batch = {
            start + i: (start, batch)
            for start, batch in batches(runs.task.records, runs.batch_size)
            for i in range(len(batch))
        }
        self._keys: dict[int, str] = {}

    def of(self, place: int) -> Evidence:
        """The evidence of the record at a place."""
        values = self._values(place)
        if values is None:
            self._measure(*self._batch[place])
            values = self._values(place)
        if values is None:
            raise ReweighError(
                f"the evidence of record {place} was measured, but its cache dropped it at once"
            )
        return self._evidence(values)

    def nothing(self) -> Evidence:
        """What no image supports."""
        return self._evidence(torch.zeros(self._attached.decoder.anatomy.vocab_size))

    def _values(self, place: int) -> torch.Tensor | None:
        recall = self._attached.recall
        if recall is None:
            return None
        if place not in self._keys:
            start, batch = self._batch[place]
            pictures, prompts = self._pictures(batch), [one.prompt for one in batch]
            model, processor = self._attached.model, self._attached.processor
            inputs = prepare(model, processor, pictures, prompts, template=self._runs.template)
            keys = recall.keys(pictures, inputs)
            self._keys.update({start + i: key for i, key in enumerate(keys)})
        return recall.get(self._keys[place])

    def _measure(self, start: int, batch: Sequence[Record]) -> None:
        prompts = [record.prompt for record in batch]
        options: dict[str, Any] = {**GREEDY, "max_new_tokens": 1, "template": self._runs.template}
        self._attached.describe(self._pictures(batch), prompts, **options)

    def _pictures(self, batch: Sequence[Record]) -> list[Image]:
        return [read_image(find_image(self._runs.task.images, record.image)) for record in batch]

    def _evidence(self, values: torch.Tensor) -> Evidence:
        method = self._attached.decoder
        return Evidence(
            layers=(method.table.layer,), values=values[None], columns=(), patches=(), dtype=method.lens.dtype
        )


class Tally:
    """Counts candidate positions, edits and edits beyond the bound; a row counts until its end token."""

    def __init__(self, beta: float, ends: Sequence[int]) -> None:
        self.bound = beta
        self.ends = torch.tensor(list(ends), dtype=torch.int64)
        self._counts: torch.Tensor | None = None
        self._speaking: torch.Tensor | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What was counted since the batch began."""
        counted = [0] * len(COUNTED) if self._counts is None else self._counts.tolist()
        return dict(zip(COUNTED, counted, strict=True))

    def begin(self) -> None:
        """A new batch speaks."""
        self._counts = self._speaking = None

    def record(self, recorded: Recorded) -> None:
        """Count one step."""
        if self._speaking is None:
            self._speaking = torch.ones(len(recorded.after), dtype=torch.bool, device=recorded.after.device)
        speaking = self._speaking if recorded.rows is None else self._speaking[recorded.rows]
        counted = recorded.chosen.keep & speaking[:, None]
        size = recorded.shift.abs()
        found = (counted, (size != 0) & counted, (size > size.new_tensor(self.bound)) & counted)
        step = torch.stack([one.sum() for one in found])  # stays on the device: no step waits for it
        self._counts = step if self._counts is None else self._counts + step
        self._speaking = self._speaking & ~torch.isin(recorded.after, self.ends.to(recorded.after.device))


def attach_arm(
    model: Any, processor: Any, arm: Arm, beta: float, *, force: bool = False
) -> ReweighAttachment:
    """Tie an arm to a model, as ``attach`` ties the method."""
    anatomy = find_anatomy(model)
    table, lens = pair(anatomy, processor, arm.table, layer=None, force=force)
    return ReweighAttachment(model, processor, arm.method(anatomy, table, beta, lens=lens))


def asking_arm(
    attached: ReweighAttachment, arm: Arm, witness: Witness, folder: Path, *, template: str | None
) -> Ask:
    """A function that answers batches as the arm does, and notes its edits in the run folder."""
    tally = Tally(attached.beta, end_tokens(attached.model.generation_config))

    def ask(start: int, batch: Sequence[Record], pictures: list[Image], seed: int) -> list[str]:
        given = [
            witness.nothing() if arm.donors is None else witness.of(arm.donors[start + i])
            for i in range(len(batch))
        ]
        prompts = [record.prompt for record in batch]
        options: dict[str, Any] = {**GREEDY, "max_new_tokens": batch[0].max_new_tokens, "template": template}
        tally.begin()
        with attached.using(given), attached.watched_by(tally):
            texts: list[str] = attached.describe(pictures, prompts, **options)
        # the counts come first: a kill in between leaves counts that the next try replaces
        append_jsonl(folder / EDITS, [{"start": start, **tally.counts}])
        return texts

    return ask


def read_edits(folder: Path) -> Mapping[str, int] | None:
    """The counts of a run, the last try of each batch; ``None`` for a run that edits nothing by nature."""
    if not (folder / EDITS).exists():
        return None
    rows = {row["start"]: row for row in read_jsonl(folder / EDITS)}
    return {name: sum(row[name] for row in rows.values()) for name in COUNTED}


def told_of(arm: Arm, beta: float) -> dict[str, Any]:
    """What an arm's record keeps of its decoding."""
    return {
        "decoder": "reweigh",
        "generation": dict(GREEDY),
        "options": {"beta": beta, "layer": arm.table.layer, **arm.told()},
        "table_sha256": arm.table.fingerprint,
    }
