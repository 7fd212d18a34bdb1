"""The inputs of every study: the corpora of both image sets, the table in use and its variants, and the model.

What a pass over the images kept is in the corpora. What needs the model is answered again under an edit, with the kept
evidence: every setting is an arm with one run folder, which resumes and which all studies share. The base answers are
the corpus's own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from reweigh.engines.answer import Answer
from reweigh.engines.base import GREEDY
from reweigh.errors import MismatchError
from reweigh.families.processor import tokenizer_of
from reweigh.files.artifacts import sha256_file, sha256_json
from reweigh.lab import study as lab
from reweigh.lab.arms.ablate.arms import RANK, Variant, readout_arm
from reweigh.lab.arms.ablate.run import as_evidence, attach_variant, variant_arm
from reweigh.lab.bootstrap import RESAMPLES
from reweigh.lab.enough import claims
from reweigh.lab.estimate import Estimate
from reweigh.lab.paper.corpus.store import MANIFEST, StudyCorpus
from reweigh.lab.runs.results import Scored
from reweigh.lab.runs.task import Runs
from reweigh.lab.study import Answered, Arm, Batch, Opened
from reweigh.lab.tasks.chair.metrics import figures
from reweigh.method.evidence import Evidence
from reweigh.method.readouts import DMRR
from reweigh.method.references import rule_named
from reweigh.provenance import versions
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

EMBEDDED = "reweigh world"
"""The embedded model's name in its tables."""
COMMAND = "world"
"""Its name in commands."""
FIGURES = {"chair_s": "CHAIR_S", "chair_i": "CHAIR_I", "recall": "Recall", "f1": "F1"}
"""Figures of CHAIR, and what the paper's tables call them."""
BASE, PROBABILITY = "base", "probability"

T = TypeVar("T")


@dataclass(frozen=True)
class Material:
    """What studies read.

    Attributes:
        describe_calibration: Makes or opens the corpus of the images that the table was calibrated on.
        evaluation: The corpus of the images that are scored; disjoint from the others.
        table: The DMRR table in use.
        beta: The maximum penalty in use.
        loaded: Model and processor.
        runs: The evaluation records, how they are asked and scored; its seed is that of every draw.
        folder: The folder of the studies; the runs are below it, by task and arm.
        force: Whether a table of another model is accepted.
        resamples: Draws of a bootstrap.
        kept: The observations kept beside the table, at its layer, if there are any.
    """

    describe_calibration: Callable[[], StudyCorpus]
    evaluation: StudyCorpus
    table: ReferenceTable
    beta: float
    loaded: tuple[Any, Any]
    runs: Runs
    folder: Path
    force: bool = False
    resamples: int = RESAMPLES
    kept: Observations | None = None
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._require_layer(self.evaluation)

    def _require_layer(self, corpus: StudyCorpus) -> StudyCorpus:
        if corpus.layer != self.table.layer:
            raise MismatchError(
                f"the table is of layer {self.table.layer}, the corpus in {corpus.folder} of {corpus.layer}"
            )
        return corpus

    @cached_property
    def calibration(self) -> StudyCorpus:
        """The corpus of the images that the table was calibrated on, made when the first study reads it."""
        return self._require_layer(self.describe_calibration())

    @property
    def is_embedded(self) -> bool:
        """Whether the model is the one that ships with the package, made to show the effect."""
        return bool(self.table.about.get("identity", {}).get("model_id") == EMBEDDED)

    @property
    def rule(self) -> str:
        """The registration rule of the table in use."""
        return rule_name(self.table)

    @property
    def draws(self) -> dict[str, int]:
        """The options of a bootstrap."""
        return {"resamples": self.resamples}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of ``make``, computed once for all studies; the key must name everything it depends on."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def observations(self, readout: str = DMRR, *, evidence: str | None = None) -> Observations:
        """Return the candidate occurrences of the calibration images under a readout."""
        return self.once(
            ("observations", readout, evidence),
            lambda: self.calibration.observations(readout, evidence=evidence),
        )

    def panel(self) -> Observations:
        """Return what the table was registered from: the observations beside it, else those of the calibration corpus.

        Another machine may round a logit differently, and then a rank or two of the latter differ.
        """
        return self.observations() if self.kept is None else self.kept

    def arm(self, name: str, *, evidence: str | None = None) -> Variant:
        """Return a readout's table and budget: ``rank``, or one of ``READOUT_ARMS`` of an ablation.

        ``evidence`` names a kept vector that replaces the readout's own, such as that of equalized logits.
        """
        return self.once(
            ("arm", name, evidence),
            lambda: readout_arm(
                name, self.table, self.observations, rule=rule_named(self.rule), evidence=evidence
            ),
        )

    def pieces(self) -> tuple[list[str | None], set[int]]:
        """Return the tokenizer's pieces by id (None for ids beyond it), and the ids of special tokens."""
        tokenizer = tokenizer_of(self.loaded[1])
        size = self.evaluation.vocab_size
        known = tokenizer.convert_ids_to_tokens(list(range(min(len(tokenizer), size))))
        return [*known, *[None] * (size - len(known))], set(tokenizer.all_special_ids)

    def beside(self, name: str) -> Path:
        """Return a folder beside the runs, where other commands leave what a study reads."""
        return self.folder / name

    def base(self) -> Scored:
        """Score the base model's answers, as the corpus has them."""

        def ask(batch: Batch) -> Answered:
            numbers = range(batch.start, batch.start + len(batch.records))
            return Answered([Answer(self.evaluation.image(number).text) for number in numbers])

        about = {"decoder": BASE, "decoding": dict(GREEDY), "source": "study corpus"}
        return self._score(Arm(BASE, lambda _: Opened(about, ask)))

    def rank(self) -> Scored:
        """Answer with the method itself."""
        return self.run(self.arm(RANK))

    def run(self, variant: Variant) -> Scored:
        """Answer all records as an arm does and score them; a run of its name with other settings is refused."""

        about = {
            "vector": variant.table.readout,
            "donors": None if variant.donors is None else list(variant.donors),
            "blind": variant.blind,
            "clip": list(variant.clip),
        }

        def opened(model: tuple[Any, Any]) -> Opened:
            session = attach_variant(*model, variant, self.beta, force=self.force)

            def kept(number: int, readout: str) -> Evidence:
                vector = self.evaluation.image(number).evidence[readout]
                return as_evidence(torch.tensor(vector), readout, session)

            arm = variant_arm(variant, lambda _: session, kept).opened(model, self.runs.template)
            return Opened({**arm.record, "evidence": about}, arm.ask)

        return self._score(Arm(variant.name, opened))

    @cached_property
    def _study(self) -> lab.Study:
        return lab.Study([self.runs], [], self.folder, reference=None)

    def _score(self, arm: Arm) -> Scored:
        """Answer what has no answer yet, and score."""
        with self._study.progress(1):
            self._study.answer(self.runs, [arm], self.loaded)
        return self._study.score(self.runs, arm)

    def run_folder(self, name: str) -> Path:
        """Return the folder of a setting's run."""
        return self.folder / self.runs.task.name / name

    def difference(self, first: Scored, second: Scored) -> dict[str, Estimate]:
        """Subtract the figures of CHAIR, second minus first, drawing the same images for both."""
        found = claims(first.items, second.items, figures, **self.draws)
        return {name: found[name] for name in FIGURES}

    def record(self) -> dict[str, Any]:
        """Return what results depend on; the table stands for the images that it was calibrated on."""
        return {
            "evaluation": sha256_file(self.evaluation.folder / MANIFEST),
            "images": {
                "calibration": int(self.table.about.get("images", 0)),
                "evaluation": len(self.evaluation),
            },
            "identity": self.evaluation.record["identity"],
            "layer": self.table.layer,
            "beta": self.beta,
            "table_sha256": self.table.fingerprint,
            "seed": self.runs.seed,
            "resamples": self.resamples,
            "versions": versions(),
        }

    @property
    def fingerprint(self) -> str:
        """Hash of the record."""
        return sha256_json(self.record())


def model_name(given: str) -> str:
    """Return a model's name as studies have it: commands call the embedded one ``world``, its tables otherwise."""
    return EMBEDDED if given == COMMAND else given


def rule_name(table: ReferenceTable) -> str:
    """Return the registration rule of a table."""
    return str(table.about.get("rule", "stable"))


def register(part: Observations, deployed: ReferenceTable, rule: str | None = None) -> ReferenceTable:
    """Register a table from some observations as the table in use was, or by another rule."""
    name = rule or rule_name(deployed)
    about = {**deployed.about, "rule": name, "images": len(part.images), "corpus": part.corpus}
    return ReferenceTable.build(deployed.layer, part.register(deployed.layer, rule=rule_named(name)), about)
