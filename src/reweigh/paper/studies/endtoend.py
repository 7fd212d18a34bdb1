"""Answers under an edit: the evaluation records decoded again, with evidence that the corpus kept, into runs that resume.

The base answers are the corpus's own and are generated nowhere. Each configuration has one folder, which all studies share:
a run that is there is scored, not answered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reweigh.benchmarks.bootstrap import paired_difference
from reweigh.benchmarks.chair.metrics import figures
from reweigh.decoding.reweigh import CLIP, Clip
from reweigh.errors import ReweighError
from reweigh.estimate import Estimate
from reweigh.experiments.ablate.arms import Arm
from reweigh.experiments.ablate.run import attach_arm
from reweigh.method.evidence import Evidence
from reweigh.method.readouts import DMRR
from reweigh.paper.corpus.image import StudyImage
from reweigh.paper.corpus.store import StudyCorpus
from reweigh.paper.studies.material import Material, Rerun
from reweigh.progress import bar
from reweigh.runs.run import Ask, Batch
from reweigh.runs.task import Scored
from reweigh.runtime.answer import Answer
from reweigh.runtime.decoder import GREEDY
from reweigh.tables.table import ReferenceTable

FIGURES = ("chair_s", "chair_i", "recall", "f1")
BASE, RANK, PROBABILITY = "base", "rank", "probability"
NO_MODEL = "it answers the records again, and no model is at hand"


@dataclass(frozen=True)
class Given:
    """Whose evidence each record is given.

    Attributes:
        vector: Which of the corpus's vectors.
        donors: For each record the record whose evidence it gets; ``None`` for its own.
        blind: Whether all evidence is zero.
    """

    vector: str = DMRR
    donors: Sequence[int] | None = None
    blind: bool = False


OWN = Given()


class EndToEnd:
    """The runs of some material; ``of`` gives the same one to all studies, which then share scored runs too."""

    @classmethod
    def of(cls, material: Material) -> EndToEnd:
        """The runs of some material, opened once."""
        return material.cached("end to end", lambda: cls(material))

    def __init__(self, material: Material) -> None:
        if material.rerun is None:
            raise ReweighError(f"an end-to-end run cannot be made: {NO_MODEL}")
        self.material = material
        self.rerun: Rerun = material.rerun
        self._open: tuple[int, list[StudyImage]] = (-1, [])
        self._position = {image: (shard, index) for shard, index, image in _positions(material.evaluation)}

    def base(self) -> Scored:
        """The base model's answers, as the corpus has them."""

        def ask(batch: Batch) -> list[Answer]:
            return [Answer(self.image(batch.start + i).text) for i in range(len(batch.records))]

        return self._scored(BASE, ask, {"decoder": BASE, "decoding": dict(GREEDY), "source": "study corpus"})

    def rank(self) -> Scored:
        """The method as it is."""
        return self.run(RANK, self.material.table)

    def probability(self) -> Scored:
        """The paper's matched-budget arm: log mean probability at the scale that matches the mean edit."""
        arm = self.material.arm(PROBABILITY)
        return self.run(
            PROBABILITY, arm.table, given=Given(arm.readout), beta=self.material.beta * arm.factor
        )

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
        model, processor = self.rerun.load()
        session = attach_arm(
            model, processor, Arm(name, name, table, None, clip), bound, force=self.rerun.force
        )

        def ask(batch: Batch) -> list[Answer]:
            evidence = [self._evidence(session, batch.start + i, given) for i in range(len(batch.records))]
            options: dict[str, Any] = {
                **GREEDY,
                "max_new_tokens": batch.max_new_tokens,
                "template": self.rerun.runs.template,
            }
            with session.request(evidence=evidence):
                return session.answer(batch.pictures, batch.prompts, **options)

        donors = None if given.donors is None else [int(one) for one in given.donors]
        about = {"vector": given.vector, "donors": donors, "blind": given.blind, "clip": list(clip)}
        return self._scored(name, ask, {**session.record(), "evidence": about})

    def image(self, number: int) -> StudyImage:
        """One image of the evaluation corpus."""
        if number not in self._position:
            raise ReweighError(
                f"image {number} of the evaluation set could not be read when the corpus was made",
                hint="remove it from the images, and study again in another folder",
            )
        shard, index = self._position[number]
        if self._open[0] != shard:  # one shard in memory at a time
            self._open = shard, self.material.evaluation.shard(shard)
        return self._open[1][index]

    def _evidence(self, session: Any, number: int, given: Given) -> Evidence:
        vector: NDArray[Any]
        if given.blind:
            vector = np.zeros(self.material.evaluation.vocab_size, dtype=np.float32)
        else:
            donor = number if given.donors is None else int(given.donors[number])
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

    def _scored(self, name: str, ask: Ask, decoding: dict[str, Any]) -> Scored:
        return self.material.cached(f"run {name}", lambda: self._answered(name, ask, decoding))

    def _answered(self, name: str, ask: Ask, decoding: dict[str, Any]) -> Scored:
        runs, folder = self.rerun.runs, self.rerun.folder / name
        records = len(runs.task.records)
        with bar(f"answering, {name}", total=records, done=runs.done(folder), unit="answer") as progress:
            runs.answer(ask, folder, decoding, progress=progress)
        return runs.score(folder)


def difference(first: Scored, second: Scored, *, resamples: int, seed: int) -> dict[str, Estimate]:
    """Second minus first for the figures of CHAIR, drawing the same images for both."""
    found = paired_difference(first.items, second.items, figures, resamples=resamples, seed=seed)
    return {name: found[name] for name in FIGURES}


def _positions(corpus: StudyCorpus) -> list[tuple[int, int, int]]:
    """Shard, index in it and number of every image."""
    return [
        (shard, index, image.number)
        for shard in range(len(corpus.shards))
        for index, image in enumerate(corpus.shard(shard))
    ]
