"""Answers under an edit: the evaluation records decoded again with the evidence that the corpus kept, in runs that resume.

The base answers are the corpus's own and are not generated again. Each configuration has one folder, which all studies
share: a finished run is scored, not answered again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
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
from reweigh.method.readouts import DMRR
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


@dataclass(frozen=True)
class Given:
    """Whose evidence each record is given.

    Attributes:
        vector: Which of the corpus's vectors.
        donors: For each record, the record whose evidence it gets; ``None`` for its own.
        blind: Whether all evidence is zero.
    """

    vector: str = DMRR
    donors: tuple[int, ...] | None = None
    blind: bool = False


OWN = Given()


class Answers:
    """The runs of some material; ``of`` returns the same object to all studies, which then share scored runs too."""

    @classmethod
    def of(cls, material: Material) -> Answers:
        """The runs of some material, opened once."""
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
        """The base model's answers, as the corpus has them."""

        def ask(batch: Batch) -> Answered:
            return Answered([Answer(self.image(batch.start + i).text) for i in range(len(batch.records))])

        about = {"decoder": BASE, "decoding": dict(GREEDY), "source": "study corpus"}
        return self._score(Arm(BASE, BASE, lambda: OpenArm(about, ask)))

    def rank(self) -> Scored:
        """The method itself."""
        return self.run(RANK, self.material.table)

    def probability(self) -> Scored:
        """The paper's matched-budget arm: log mean probability at the scale that matches the mean edit."""
        arm = self.material.arm(PROBABILITY)
        beta = self.material.beta * arm.factor
        return self.run(PROBABILITY, arm.table, given=Given(arm.readout), beta=beta)

    def run(
        self,
        name: str,
        table: ReferenceTable,
        *,
        given: Given = OWN,
        beta: float | None = None,
        clip: Clip = CLIP,
    ) -> Scored:
        """Answer all records with a table and the evidence given, and score them; another clip is an ablation."""
        bound = self.material.beta if beta is None else beta

        def opened() -> OpenArm:
            variant = Variant(name, name, table, None, clip)
            session = attach_variant(*self.rerun.load(), variant, bound, force=self.rerun.force)
            donors = None if given.donors is None else list(given.donors)
            about = {**asdict(given), "donors": donors, "clip": list(clip)}
            return OpenArm({**session.record(), "evidence": about}, partial(self._ask, session, given))

        return self._score(Arm(name, name, opened))

    def _ask(self, session: ReweighSession, given: Given, batch: Batch) -> Answered:
        evidence = [self._evidence(session, batch.start + i, given) for i in range(len(batch.records))]
        options: dict[str, Any] = {
            **GREEDY,
            "max_new_tokens": batch.max_new_tokens,
            "template": self.rerun.runs.template,
        }
        with session.request(evidence=evidence):
            return Answered(session.answer(batch.pictures, batch.prompts, **options))

    def image(self, number: int) -> StudyImage:
        """One image of the evaluation corpus."""
        if number not in self._place:
            raise ReweighError(
                f"image {number} of the evaluation set could not be read when the corpus was made",
                hint="remove it from the images and start again in another folder",
            )
        shard, index = self._place[number]
        if self._shard[0] != shard:  # one shard in memory at a time
            self._shard = shard, self.material.evaluation.shard(shard)
        return self._shard[1][index]

    def _evidence(self, session: Any, number: int, given: Given) -> Evidence:
        vector: NDArray[Any]
        if given.blind:
            vector = np.zeros(self.material.evaluation.vocab_size, dtype=np.float32)
        else:
            donor = number if given.donors is None else given.donors[number]
            vector = self.image(donor).evidence[given.vector]
        deployed = session.decoder.deployed
        return Evidence(
            layers=deployed.reader.layers,
            values=torch.from_numpy(np.array(vector))[None],
            positions=(),
            patches=(),
            dtype=deployed.lens.dtype,
            readout=given.vector,
        )

    def _score(self, arm: Arm) -> Scored:
        """Answer what is missing and score; a run of the same name with other settings is refused by its folder."""
        with self.experiment.progress(1, [arm.name]):
            self.experiment.answer(arm)
        return self.experiment.score(arm)


def difference(first: Scored, second: Scored, *, resamples: int, seed: int) -> dict[str, Estimate]:
    """Second minus first for the figures of CHAIR, drawing the same images for both."""
    found = paired_difference(first.items, second.items, figures, resamples=resamples, seed=seed)
    return {name: found[name] for name in FIGURES}
