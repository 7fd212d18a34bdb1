"""Make what studies read: describe the images, resume or reuse what is there, and check it against the table."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from reweigh.calibration.corpus import Corpus, open_corpus
from reweigh.engines.pairing import pair
from reweigh.errors import InputError, MismatchError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.points import point_in_use
from reweigh.families.processor import prompt_hash
from reweigh.lab.arms.ablate.arms import FindReadout, readout_arm, set_difference
from reweigh.lab.arms.ablate.run import observations_beside
from reweigh.lab.bootstrap import RESAMPLES
from reweigh.lab.paper.corpus.make import ImageSet, make_corpus
from reweigh.lab.paper.corpus.store import StudyCorpus
from reweigh.lab.paper.material import Material, register, rule_name
from reweigh.lab.runs.task import Runs
from reweigh.method.references import rule_named
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable
from reweigh.world.pictures import draw
from reweigh.world.scenes import scenes

ROUNDING = 0.01
"""How far b0, the registered set and the median reference may be from the table's: machines round products differently."""


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

    The calibration images are described when the first study reads them.

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
    bound = point_in_use(anatomy.family.name, len(anatomy.blocks), found, beta).beta
    runs = replace(runs, batch_size=runs.batch_size or int(found.about["batch_size"]))

    def describe_calibration() -> StudyCorpus:
        images = calibration_images(found, calibration, out / "pictures" / "calibration", world=world)
        return calibration_corpus(loaded, found, images, out / "corpus" / "calibration", runs)

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
        describe_calibration,
        described,
        found,
        bound,
        loaded,
        runs,
        out,
        force=force,
        resamples=resamples,
        kept=None if kept is None else kept.at([found.layer]),
    )


def readouts_of(
    loaded: tuple[Any, Any],
    table: ReferenceTable,
    calibration: Path | None,
    out: Path,
    runs: Runs,
    *,
    world: bool = False,
) -> FindReadout:
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
            "no calibration images were given",
            hint="pass the folder or manifest that the table was calibrated on: --calibration IMAGES",
        )
    for scene in scenes("calibration", int(table.about["images"])):
        draw(scene, drawings)
    return open_corpus(drawings)


def calibration_corpus(
    loaded: tuple[Any, Any], table: ReferenceTable, images: Corpus, folder: Path, runs: Runs
) -> StudyCorpus:
    """Make the corpus of a table's calibration images, decoded as they were then; refuse one that gives another table."""
    made = table.about
    if made.get("prompt_sha256", "") not in ("", prompt_hash(loaded[1], made["prompt"], runs.template)):
        raise MismatchError(
            "the table was calibrated with a different prompt template from the one in use",
            hint="pass the calibration's template with --model-option template=TEXT",
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
    close = abs(found.b0 / table.b0 - 1) < ROUNDING and set_difference(found, table) < ROUNDING
    if not close or (compared["median_abs_log_ratio"] or 0.0) > ROUNDING:
        raise MismatchError(
            f"these calibration images give b0 = {found.b0:.6g} and {len(found)} registered tokens, the table "
            f"in use has {table.b0:.6g} and {len(table)}; {compared['common']} tokens are in both",
            hint="pass the images that the table was calibrated on, and the model as it was then",
        )
