"""From a model and images to the material of studies: both corpora, made or gone on with, checked against the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from reweigh.benchmarks.bootstrap import RESAMPLES
from reweigh.calibration.corpus import Corpus, open_corpus
from reweigh.decoding import operating_point
from reweigh.engines.transformers.pairing import pair
from reweigh.errors import InputError, MismatchError
from reweigh.experiments.ablate.study import observations_beside
from reweigh.experiments.readouts import ReadoutArm, readout_arm
from reweigh.families.anatomy import find_anatomy
from reweigh.families.processor_parts import prompt_hash
from reweigh.method.references import rule_named
from reweigh.paper.corpus.make import ImageSet, make_corpus
from reweigh.paper.corpus.store import StudyCorpus
from reweigh.paper.studies.material import Material, Rerun, check_reproduces
from reweigh.runs.task import Runs
from reweigh.tables.table import ReferenceTable
from reweigh.world.pictures import draw
from reweigh.world.scenes import scenes

FIGURES = ("chair_s", "chair_i")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What was asked for.

    Attributes:
        table: Folder or repository of the table in use.
        layer: Its layer, where there are several.
        beta: The maximum penalty; the one that goes with the table if not given.
        calibration: The images of the table; ``None`` for those of the embedded world.
        resamples: Draws of a bootstrap.
        force: Whether a table of another model is accepted.
    """

    table: str
    layer: int | None = None
    beta: float | None = None
    calibration: Path | None = None
    resamples: int = RESAMPLES
    force: bool = False


def prepare(
    loaded: tuple[Any, Any], runs: Runs, order: Order, out: Path, *, world: bool, show: bool | None = None
) -> Material:
    """The material of studies in a folder; whatever is there already is not made again.

    Runs of a batch size of 0 answer as many images at once as calibration did.
    """
    model, processor = loaded
    runs.task.require(FIGURES, "a study")
    runs.task.require_records()
    anatomy = find_anatomy(model)
    table, _ = pair(anatomy, processor, order.table, layer=order.layer, force=order.force)
    beta = operating_point(anatomy, table, order.beta).beta
    runs = replace(runs, batch_size=runs.batch_size or int(table.made_with["batch_size"]))
    images = calibration_images(table, order.calibration, out / "pictures" / "calibration", world=world)
    calibration = calibration_corpus(
        loaded,
        table,
        images,
        out / "corpus" / "calibration",
        seed=runs.seed,
        template=runs.template,
        show=show,
    )
    evaluation = make_corpus(
        model,
        processor,
        ImageSet.of_task(runs.task),
        out / "corpus" / "evaluation",
        table=table,
        seed=runs.seed,
        batch_size=runs.batch_size,
        template=runs.template,
        show=show,
    )
    rerun = Rerun(lambda: loaded, runs, out / "runs", order.force)
    kept = observations_beside(order.table)
    return Material(
        calibration,
        evaluation,
        table,
        beta,
        runs.seed,
        order.resamples,
        rerun,
        None if kept is None else kept.at([table.layer]),
    )


def calibration_images(table: ReferenceTable, source: Path | None, drawings: Path, *, world: bool) -> Corpus:
    """The images that a table was calibrated on; those of the embedded world are drawn."""
    if source is not None:
        return open_corpus(source)
    if not world:
        raise InputError(
            "the calibration images were not given",
            hint="name the folder or manifest that the table was calibrated on: --calibration IMAGES",
        )
    for scene in scenes("calibration", int(table.made_with["images"])):
        draw(scene, drawings)
    return open_corpus(drawings)


def readouts_of(
    loaded: tuple[Any, Any], table: ReferenceTable, images: Corpus, folder: Path, runs: Runs
) -> Callable[[str], ReadoutArm]:
    """Registers readout arms from the calibration images, which are read once for all of them."""
    corpus = calibration_corpus(loaded, table, images, folder, seed=runs.seed, template=runs.template)
    rule = rule_named(str(table.made_with.get("rule", "stable")))
    return cache(lambda name: readout_arm(name, table, corpus.observations, rule=rule))


def calibration_corpus(
    loaded: tuple[Any, Any],
    table: ReferenceTable,
    images: Corpus,
    folder: Path,
    *,
    seed: int,
    template: str | None = None,
    show: bool | None = None,
) -> StudyCorpus:
    """The corpus of a table's calibration images, decoded as they were then; refused if it gives another table."""
    made = table.made_with
    if made.get("prompt_sha256", "") not in ("", prompt_hash(loaded[1], made["prompt"], template)):
        raise MismatchError(
            "the table was calibrated with another prompt template than the one in use",
            hint="give the template of the calibration with --template",
        )
    asked = ImageSet.of_corpus(images, prompt=made["prompt"], max_new_tokens=made["max_new_tokens"])
    corpus = make_corpus(
        *loaded,
        asked,
        folder,
        table=table,
        seed=seed,
        batch_size=made["batch_size"],
        template=template,
        show=show,
    )
    check_reproduces(corpus.observations(), table)
    return corpus
