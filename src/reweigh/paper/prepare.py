"""From a model and images to the material of studies: both corpora, made or resumed, and checked against the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from reweigh.families.processor import prompt_hash
from reweigh.method.references import rule_named
from reweigh.paper.corpus.make import ImageSet, make_corpus
from reweigh.paper.corpus.store import StudyCorpus
from reweigh.paper.material import Material, Rerun, check_reproduces
from reweigh.runs.task import Runs
from reweigh.tables.table import ReferenceTable
from reweigh.world.pictures import draw
from reweigh.world.scenes import scenes

FIGURES = ("chair_s", "chair_i")


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
    show: bool | None = None,
) -> Material:
    """The material of studies in a folder; what is already there is not made again.

    Args:
        loaded: Model and processor.
        runs: How records are answered; with a batch size of 0, as many at once as in calibration.
        out: The folder.
        table: Folder or repository of the table in use.
        layer: Its layer, where there are several.
        beta: The maximum penalty; by default the one that goes with the table.
        calibration: The images of the table; ``None`` for those of the embedded world.
        resamples: Draws of a bootstrap.
        world: Whether it is the embedded model.
        force: Whether a table of another model is accepted.
        show: Whether to show progress bars; by default on a terminal.
    """
    runs.task.require(FIGURES, "a study")
    runs.task.require_records()
    anatomy = find_anatomy(loaded[0])
    found, _ = pair(anatomy, loaded[1], table, layer=layer, force=force)
    bound = operating_point(anatomy, found, beta).beta
    runs = replace(runs, batch_size=runs.batch_size or int(found.made_with["batch_size"]))
    images = calibration_images(found, calibration, out / "pictures" / "calibration", world=world)
    options: dict[str, Any] = {"seed": runs.seed, "template": runs.template, "show": show}
    observed = calibration_corpus(loaded, found, images, out / "corpus" / "calibration", **options)
    described = make_corpus(
        *loaded,
        ImageSet.of_task(runs.task),
        out / "corpus" / "evaluation",
        table=found,
        batch_size=runs.batch_size,
        **options,
    )
    kept = observations_beside(table)
    return Material(
        observed,
        described,
        found,
        bound,
        runs.seed,
        resamples,
        Rerun(lambda: loaded, runs, out / "runs", force),
        None if kept is None else kept.at([found.layer]),
    )


def calibration_images(table: ReferenceTable, source: Path | None, drawings: Path, *, world: bool) -> Corpus:
    """The images that a table was calibrated on; those of the embedded world are drawn."""
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


def readouts_of(
    loaded: tuple[Any, Any],
    table: ReferenceTable,
    calibration: Path | None,
    out: Path,
    runs: Runs,
    *,
    world: bool = False,
) -> Callable[[str], ReadoutArm]:
    """Registers an ablation's readout arms from the calibration images, which are read once for all of them."""
    images = calibration_images(table, calibration, out / "calibration", world=world)
    corpus = calibration_corpus(loaded, table, images, out / "corpus", seed=runs.seed, template=runs.template)
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
            hint="give the calibration's template with --model-option template=TEXT",
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
