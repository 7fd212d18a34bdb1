"""What every study is given: corpora of the calibration and evaluation images, the table in use, and its variants.

``prepare`` makes the material of a model and its images, or resumes it, and checks it against the table. Tables of other
readouts are registered from the calibration corpus when a study asks for one. A study that needs the model finds it in
``rerun``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from reweigh.benchmarks.bootstrap import RESAMPLES
from reweigh.calibration.corpus import Corpus, open_corpus
from reweigh.decoding import operating_point
from reweigh.engines.transformers.measure import pair
from reweigh.errors import InputError, MismatchError
from reweigh.experiments.ablate.run import observations_beside
from reweigh.experiments.readouts import ReadoutArm, readout_arm, set_difference
from reweigh.families.anatomy import find_anatomy
from reweigh.families.processor import prompt_hash, tokenizer_of
from reweigh.files.artifacts import sha256_file, sha256_json
from reweigh.method.readouts import DMRR
from reweigh.method.references import rule_named
from reweigh.paper.corpus.make import ImageSet, make_corpus
from reweigh.paper.corpus.store import MANIFEST, StudyCorpus
from reweigh.provenance import versions
from reweigh.runs.task import Runs
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable
from reweigh.world.pictures import draw
from reweigh.world.scenes import scenes

EMBEDDED = "reweigh world"
"""What tables of the embedded model call it."""
ROUNDING = 0.01
"""How far b0, the registered set and the median reference may be from the table's: machines round products differently."""

T = TypeVar("T")


@dataclass(frozen=True)
class Rerun:
    """How a study answers the evaluation records again, for what cannot be read from the corpus.

    Attributes:
        loaded: Model and processor.
        runs: The records, how they are asked and scored.
        folder: Folder of the runs, one per configuration, which all studies share.
        force: Whether a table of another model is accepted.
    """

    loaded: tuple[Any, Any]
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
        seed: Seed of every draw.
        resamples: Draws of a bootstrap.
        rerun: How records are answered again; None without a model.
        kept: The observations kept beside the table, at its layer, if there are any.
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
        return rule_name(self.table)

    @property
    def draws(self) -> dict[str, int]:
        """The options of a bootstrap."""
        return {"resamples": self.resamples, "seed": self.seed}

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

    def arm(self, name: str, *, evidence: str | None = None) -> ReadoutArm:
        """Return a readout's table and budget: ``rank``, or one of ``reweigh.experiments.readouts.ARMS``.

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
        if self.rerun is None:
            raise InputError("the tokenizer's pieces are needed", hint="prepare the material with its model")
        tokenizer = tokenizer_of(self.rerun.loaded[1])
        size = self.evaluation.vocab_size
        known = tokenizer.convert_ids_to_tokens(list(range(min(len(tokenizer), size))))
        return [*known, *[None] * (size - len(known))], set(tokenizer.all_special_ids)

    def beside(self, name: str) -> Path | None:
        """Return a folder beside the runs, where other commands leave what a study reads; None without a model."""
        return None if self.rerun is None else self.rerun.folder.parent / name

    def record(self) -> dict[str, Any]:
        """Return what results depend on."""
        return {
            "calibration": sha256_file(self.calibration.folder / MANIFEST),
            "evaluation": sha256_file(self.evaluation.folder / MANIFEST),
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


def rule_name(table: ReferenceTable) -> str:
    """Return the registration rule of a table."""
    return str(table.made_with.get("rule", "stable"))


def register(part: Observations, deployed: ReferenceTable, rule: str | None = None) -> ReferenceTable:
    """Register a table from some observations as the table in use was, or by another rule."""
    name = rule or rule_name(deployed)
    about = {**deployed.made_with, "rule": name, "images": len(part.images), "corpus": part.corpus}
    return ReferenceTable.build(deployed.layer, part.register(deployed.layer, rule=rule_named(name)), about)


def prepare(
    loaded: tuple[Any, Any],
    runs: Runs,
    out: Path,
    *,
    table: str,
    layer: int | None = None,
    beta: float | None = None,
    calibration: Path | None = None,
    resamples: int = RESAMPLES,
    world: bool = False,
    force: bool = False,
) -> Material:
    """Make the material of studies in a folder; what is already there is not made again.

    Args:
        loaded: Model and processor.
        runs: How records are answered; with a batch size of 0, as many at once as in calibration.
        out: The folder.
        table: Folder or repository of the table in use.
        layer: Its layer, if it has several.
        beta: The maximum penalty; by default the one that goes with the table.
        calibration: The images of the table; None for those of the embedded world.
        resamples: Draws of a bootstrap.
        world: Whether it is the embedded model.
        force: Whether a table of another model is accepted.
    """
    runs.task.require(("chair_s", "chair_i"), "a study")
    runs.task.require_records()
    anatomy = find_anatomy(loaded[0])
    found, _ = pair(anatomy, loaded[1], table, layer=layer, force=force)
    bound = operating_point(anatomy, found, beta).beta
    runs = replace(runs, batch_size=runs.batch_size or int(found.made_with["batch_size"]))
    images = calibration_images(found, calibration, out / "pictures" / "calibration", world=world)
    observed = calibration_corpus(loaded, found, images, out / "corpus" / "calibration", runs)
    described = make_corpus(
        *loaded,
        ImageSet.of_task(runs.task),
        out / "corpus" / "evaluation",
        table=found,
        batch_size=runs.batch_size,
        seed=runs.seed,
        template=runs.template,
    )
    kept = observations_beside(table)
    return Material(
        observed,
        described,
        found,
        bound,
        runs.seed,
        resamples,
        Rerun(loaded, runs, out / "runs", force),
        None if kept is None else kept.at([found.layer]),
    )


def readouts_of(
    loaded: tuple[Any, Any],
    table: ReferenceTable,
    calibration: Path | None,
    out: Path,
    runs: Runs,
    *,
    world: bool = False,
) -> Callable[[str], ReadoutArm]:
    """Return a function that registers an ablation's readout arms; the calibration images are read once for all."""
    images = calibration_images(table, calibration, out / "calibration", world=world)
    corpus = calibration_corpus(loaded, table, images, out / "corpus", runs)
    rule = rule_named(rule_name(table))
    return cache(lambda name: readout_arm(name, table, corpus.observations, rule=rule))


def calibration_images(table: ReferenceTable, source: Path | None, drawings: Path, *, world: bool) -> Corpus:
    """Open the images that a table was calibrated on; draw those of the embedded world."""
    if source is not None:
        return open_corpus(source)
    if not world:
        raise InputError(
            "the calibration images are not given",
            hint="give the folder or manifest that the table was calibrated on: --calibration IMAGES",
        )
    for scene in scenes("calibration", int(table.made_with["images"])):
        draw(scene, drawings)
    return open_corpus(drawings)


def calibration_corpus(
    loaded: tuple[Any, Any], table: ReferenceTable, images: Corpus, folder: Path, runs: Runs
) -> StudyCorpus:
    """Make the corpus of a table's calibration images, decoded as they were then; refuse one that gives another table."""
    made = table.made_with
    if made.get("prompt_sha256", "") not in ("", prompt_hash(loaded[1], made["prompt"], runs.template)):
        raise MismatchError(
            "the table was calibrated with a different prompt template from the one in use",
            hint="give the calibration's template with --model-option template=TEXT",
        )
    corpus = make_corpus(
        *loaded,
        ImageSet.of_corpus(images, prompt=made["prompt"], max_new_tokens=made["max_new_tokens"]),
        folder,
        table=table,
        batch_size=made["batch_size"],
        seed=runs.seed,
        template=runs.template,
    )
    check_reproduces(corpus.observations(), table)
    return corpus


def check_reproduces(observations: Observations, table: ReferenceTable) -> None:
    """Refuse calibration images that do not give the table in use, up to the rounding of another machine."""
    found = register(observations, table)
    compared = table.compare(found)
    close = abs(found.scale / table.scale - 1) < ROUNDING and set_difference(found, table) < ROUNDING
    if not close or (compared["median_abs_log_ratio"] or 0.0) > ROUNDING:
        raise MismatchError(
            f"these calibration images give b0 = {found.scale:.6g} and {len(found)} registered tokens, the table "
            f"in use has {table.scale:.6g} and {len(table)}; {compared['common']} tokens are in both",
            hint="give the images that the table was calibrated on, and the model as it was then",
        )
