"""Answer the evaluation records again, under an edit, with the evidence that the corpus kept.

Every configuration is an arm with one run folder, which resumes and which all studies share. The base answers are the
corpus's own and are not generated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reweigh.benchmarks.bootstrap import paired_difference
from reweigh.benchmarks.chair.metrics import figures
from reweigh.decoding import ReweighSession
from reweigh.decoding.reweigh import CLIP, Clip
from reweigh.errors import ReweighError
from reweigh.estimate import Estimate
from reweigh.experiments.ablate.arms import Variant
from reweigh.experiments.ablate.run import attach_variant
from reweigh.experiments.experiment import Arm, Experiment, OpenArm
from reweigh.method.evidence import Evidence
from reweigh.paper.corpus.image import StudyImage
from reweigh.paper.material import Material, Rerun
from reweigh.paper.study import NO_MODEL
from reweigh.runs.run import Answered, Batch
from reweigh.runs.task import Scored
from reweigh.runtime.answer import Answer
from reweigh.runtime.decoder import GREEDY
from reweigh.tables.table import ReferenceTable

FIGURES = {"chair_s": "CHAIR_S", "chair_i": "CHAIR_I", "recall": "Recall", "f1": "F1"}
"""Figures of CHAIR, and what the paper's tables call them."""
BASE, RANK, PROBABILITY = "base", "rank", "probability"
Floats = NDArray[np.float32]


class Answers:
    """The scored runs of some material; ``of`` returns the same object to all studies."""

    @classmethod
    def of(cls, material: Material) -> Answers:
        """Return the runs of some material, opened once."""
        return material.once("answers", lambda: cls(material))

    def __init__(self, material: Material) -> None:
        if material.rerun is None:
            raise ReweighError(f"an end-to-end run cannot be made: {NO_MODEL}")
        self.material = material
        self.rerun: Rerun = material.rerun
        self.experiment = Experiment(self.rerun.runs, [], self.rerun.folder)
        self._shard: tuple[int, list[StudyImage]] = (-1, [])
        self._place = {
            image.number: (shard, index)
            for shard in range(len(material.evaluation.shards))
            for index, image in enumerate(material.evaluation.shard(shard))
        }

    def base(self) -> Scored:
        """Score the base model's answers, as the corpus has them."""

        def ask(batch: Batch) -> Answered:
            return Answered([Answer(self.image(batch.start + i).text) for i in range(len(batch.records))])

        about = {"decoder": BASE, "decoding": dict(GREEDY), "source": "study corpus"}
        return self._score(Arm(BASE, lambda: OpenArm(about, ask)))

    def rank(self) -> Scored:
        """Answer with the method itself."""
        return self.run(RANK, self.material.table)

    def probability(self) -> Scored:
        """Answer with the paper's matched-budget arm: log mean probability at the scale that matches the mean edit."""
        arm = self.material.arm(PROBABILITY)
        return self.run(PROBABILITY, arm.table, factor=arm.factor)

    def run(
        self,
        name: str,
        table: ReferenceTable,
        *,
        donors: Sequence[int] | None = None,
        blind: bool = False,
        clip: Clip = CLIP,
        factor: float = 1.0,
    ) -> Scored:
        """Answer all records and score them; a run of the same name with other settings is refused by its folder.

        Args:
            name: The name of the run folder.
            table: References to edit with; the evidence is that of its readout.
            donors: For each record, the record whose evidence it is given; by default its own.
            blind: Give evidence of zero for every token.
            clip: Bounds of the strengths.
            factor: beta in units of the method's.
        """

        def given(number: int) -> Floats:
            return self.evidence(number if donors is None else donors[number], table.readout, blind=blind)

        def opened() -> OpenArm:
            variant = Variant(name, name, table, donors, clip, factor=factor)
            session = attach_variant(*self.rerun.loaded, variant, self.material.beta, force=self.rerun.force)

            def ask(batch: Batch) -> Answered:
                numbers = range(batch.start, batch.start + len(batch.records))
                evidence = [as_evidence(given(number), table.readout, session) for number in numbers]
                options: dict[str, Any] = {**GREEDY, "max_new_tokens": batch.max_new_tokens}
                options["template"] = self.rerun.runs.template
                with session.request(evidence=evidence):
                    return Answered(session.answer(batch.pictures, batch.prompts, **options))

            about = {
                "vector": table.readout,
                "donors": None if donors is None else list(donors),
                "blind": blind,
                "clip": list(clip),
            }
            return OpenArm({**session.record(), "evidence": about}, ask)

        return self._score(Arm(name, opened))

    def evidence(self, number: int, readout: str, *, blind: bool = False) -> Floats:
        """Return the evidence (V,) of one image under a readout; zeros if ``blind``."""
        if blind:
            return np.zeros(self.material.evaluation.vocab_size, dtype=np.float32)
        return self.image(number).evidence[readout]

    def image(self, number: int) -> StudyImage:
        """Return one image of the evaluation corpus."""
        if number not in self._place:
            raise ReweighError(
                f"image {number} of the evaluation set could not be read when the corpus was made",
                hint="remove it from the images and start again in another folder",
            )
        shard, index = self._place[number]
        if self._shard[0] != shard:  # one shard in memory at a time
            self._shard = shard, self.material.evaluation.shard(shard)
        return self._shard[1][index]

    def _score(self, arm: Arm) -> Scored:
        """Answer what has no answer yet, and score."""
        with self.experiment.progress(1, [arm.name]):
            self.experiment.answer(arm)
        return self.experiment.score(arm)


def as_evidence(vector: Floats, readout: str, session: ReweighSession) -> Evidence:
    """Wrap a kept vector as the evidence of one row."""
    deployed = session.decoder.deployed
    return Evidence(
        layers=deployed.reader.layers,
        values=torch.from_numpy(np.array(vector))[None],
        positions=(),
        patches=(),
        dtype=deployed.lens.dtype,
        readout=readout,
    )


def difference(first: Scored, second: Scored, *, resamples: int, seed: int) -> dict[str, Estimate]:
    """Subtract the figures of CHAIR, second minus first, drawing the same images for both."""
    found = paired_difference(first.items, second.items, figures, resamples=resamples, seed=seed)
    return {name: found[name] for name in FIGURES}
