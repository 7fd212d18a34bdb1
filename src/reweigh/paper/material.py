"""What every study is given: the corpora of calibration and evaluation images, the table in use, and its variants.

Tables of other readouts are registered from the calibration corpus when a study asks for one. Nothing here runs a model; a
study that needs one finds it in ``rerun``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from reweigh.benchmarks.bootstrap import RESAMPLES
from reweigh.errors import MismatchError
from reweigh.experiments.readouts import ReadoutArm, readout_arm, set_difference
from reweigh.files.artifacts import sha256_file, sha256_json
from reweigh.method.readouts import DMRR
from reweigh.method.references import rule_named
from reweigh.paper.corpus.store import MANIFEST, StudyCorpus
from reweigh.provenance import versions
from reweigh.runs.task import Runs
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

EMBEDDED = "reweigh world"
"""What tables of the embedded model call it."""
ROUNDING = 0.01
"""How far b0, the registered set and the median reference may be from the table's: machines round products differently."""

T = TypeVar("T")


@dataclass(frozen=True)
class Rerun:
    """How a study answers the evaluation records again, for what cannot be read from the corpus.

    Attributes:
        load: Returns the model and its processor.
        runs: The records, how they are asked and scored.
        folder: Where runs are kept, one folder per configuration; studies share them.
        force: Whether a table of another model is accepted.
    """

    load: Callable[[], tuple[Any, Any]]
    runs: Runs
    folder: Path
    force: bool = False


@dataclass(frozen=True)
class Material:
    """What studies read.

    Attributes:
        calibration: The corpus of the images that the table was calibrated on.
        evaluation: The corpus of the images that are scored; disjoint from the others.
        table: The DMRR table in use.
        beta: The maximum penalty in use.
        seed: Seed of whatever is drawn.
        resamples: Draws of a bootstrap.
        rerun: How records are answered again; ``None`` without a model.
        kept: The observations kept beside the table, at its layer; ``None`` where there are none.
    """

    calibration: StudyCorpus
    evaluation: StudyCorpus
    table: ReferenceTable
    beta: float
    seed: int = 42
    resamples: int = RESAMPLES
    rerun: Rerun | None = None
    kept: Observations | None = None
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for corpus in (self.calibration, self.evaluation):
            if corpus.layer != self.table.layer:
                raise MismatchError(
                    f"the table is of layer {self.table.layer}, the corpus in {corpus.folder} of {corpus.layer}"
                )

    @property
    def is_embedded(self) -> bool:
        """Whether the model is the one that ships with the package, made to show the effect."""
        return bool(self.table.made_with.get("identity", {}).get("model_id") == EMBEDDED)

    @property
    def rule(self) -> str:
        """The registration rule of the table in use."""
        return str(self.table.made_with.get("rule", "stable"))

    @property
    def draws(self) -> dict[str, int]:
        """The options of a bootstrap."""
        return {"resamples": self.resamples, "seed": self.seed}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of ``make``, computed once for all studies; the key must name everything it depends on."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def observations(self, readout: str = DMRR, *, evidence: str | None = None) -> Observations:
        """Candidate occurrences of the calibration images under a readout."""
        return self.once(
            ("observations", readout, evidence),
            lambda: self.calibration.observations(readout, evidence=evidence),
        )

    def panel(self) -> Observations:
        """What the table in use was registered from: the observations kept beside it, else those of the calibration corpus.

        Another machine may round a logit differently, and then a rank or two of the latter differ.
        """
        return self.observations() if self.kept is None else self.kept

    def arm(self, name: str, *, evidence: str | None = None) -> ReadoutArm:
        """A readout's table and budget: ``rank``, or one of ``reweigh.experiments.readouts.ARMS``.

        Args:
            name: The arm.
            evidence: Another of the kept vectors that stands in for its readout's own, such as that of equalized logits.
        """
        rule = rule_named(self.rule)
        return self.once(
            ("arm", name, evidence),
            lambda: readout_arm(name, self.table, self.observations, rule=rule, evidence=evidence),
        )

    def record(self) -> dict[str, Any]:
        """What results depend on."""
        return {
            "calibration": _manifest_hash(self.calibration),
            "evaluation": _manifest_hash(self.evaluation),
            "images": {"calibration": len(self.calibration), "evaluation": len(self.evaluation)},
            "identity": self.evaluation.record["identity"],
            "layer": self.table.layer,
            "beta": self.beta,
            "table_sha256": self.table.fingerprint,
            "seed": self.seed,
            "resamples": self.resamples,
            "versions": versions(),
        }

    @property
    def fingerprint(self) -> str:
        """Hash of the record."""
        return sha256_json(self.record())


def _manifest_hash(corpus: StudyCorpus) -> str:
    return sha256_file(corpus.folder / MANIFEST)


def check_reproduces(observations: Observations, table: ReferenceTable) -> None:
    """Refuse calibration images that do not give the table in use, up to the rounding of another machine."""
    rule = rule_named(str(table.made_with.get("rule", "stable")))
    found = ReferenceTable.build(table.layer, observations.register(table.layer, rule=rule), table.made_with)
    compared = table.compare(found)
    close = abs(found.scale / table.scale - 1) < ROUNDING and set_difference(found, table) < ROUNDING
    if not close or (compared["median_abs_log_ratio"] or 0.0) > ROUNDING:
        raise MismatchError(
            f"these calibration images give b0 = {found.scale:.6g} and {len(found)} registered tokens, the table "
            f"in use has {table.scale:.6g} and {len(table)}; {compared['common']} tokens are in both",
            hint="give the images that the table was calibrated on, and the model as it was then",
        )
