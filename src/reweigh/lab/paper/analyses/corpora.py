"""Calibration corpus: tables of other calibration images, at the frozen operating point.

``own`` is the corpus of the table in use. The embedded world adds mixes of scene types: halves of its own images, which need
no model. Finished calibrations of the same model in the folder ``corpora`` beside the runs (``reweigh calibrate MODEL IMAGES
-o STUDY/corpora/NAME``) are further corpora; merged with the own one they are the pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from reweigh.calibration.result import Calibration
from reweigh.errors import MismatchError
from reweigh.files.artifacts import sha256_file
from reweigh.job import MANIFEST
from reweigh.lab.arms.ablate.arms import Variant
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses.sweep import DEPLOYED, Setting, Sweep, change_of, settings_of
from reweigh.lab.paper.material import Material, register
from reweigh.tables.observations import Observations, merge
from reweigh.tables.table import ReferenceTable
from reweigh.world.kinds import KINDS
from reweigh.world.scenes import scenes

OWN, POOLED = "own", "pooled"
FOLDER = "corpora"
SCENE = re.compile(r"calibration-(\d+)-(\d+)\.png#")


class Corpora(Sweep):
    """CHAIR with tables of other calibration images."""

    name = "corpora"
    title = "Calibration corpus"
    labels = ("tab:calibration-corpus",)

    def inputs(self, material: Material) -> dict[str, str]:
        return {folder.name: sha256_file(folder / MANIFEST) for folder in calibrations(material)}

    def settings(self, material: Material) -> Iterator[Setting]:
        own, deployed = material.panel(), material.table
        counts = {"images": len(own.images), "registered": len(deployed)}
        yield Setting(OWN, material.rank(), counts, DEPLOYED)
        others = {folder.name: observed(folder, own, deployed) for folder in calibrations(material)}
        parts = {**scene_mixes(own), **others}
        if others:
            parts[POOLED] = merge([own, *others.values()])
        for name, part in parts.items():
            table = register(part, deployed)
            counts = {"images": len(part.images), "registered": len(table)}
            yield Setting(name, material.run(Variant(f"corpus-{name}", table)), counts)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        changes = [
            f"{name} ({frame.one(setting=name, quantity='images').number:,.0f} images) "
            + change_of(frame, name).text(signed=True, unit=" points")
            for name in settings_of(frame)
        ]
        told = [f"Change of CHAIR_S against the base, by calibration corpus: {'; '.join(changes)}."]
        if not calibrations(material):
            told.append(
                "No corpus from another source was given; to add one, put a finished calibration into "
                f"{FOLDER}/NAME of this folder."
            )
        return told


def calibrations(material: Material) -> list[Path]:
    """List the folders of finished calibrations beside the runs."""
    return sorted(page.parent for page in material.beside(FOLDER).glob(f"*/{MANIFEST}"))


def observed(folder: Path, own: Observations, deployed: ReferenceTable) -> Observations:
    """Read the observations of a finished calibration at the layer in use; refuse one of another model."""
    found = Calibration.load(folder)
    mine, theirs = (made.get("identity") for made in (deployed.about, found.about))
    if isinstance(mine, dict) and isinstance(theirs, dict):
        mine, theirs = ({**one, "model_id": ""} for one in (mine, theirs))
    if mine != theirs:
        raise MismatchError(
            f"{folder} was calibrated with a different model from that of the table in use",
            hint="calibrate this model on those images, with the same settings",
        )
    return found.observations.at(own.layers)


def scene_mixes(own: Observations) -> dict[str, Observations]:
    """Split the embedded world's calibration images in halves by scene type; empty for other images."""
    found = [SCENE.match(key) for key in own.images]
    if not found or not all(found):
        return {}
    places = [(int(match.group(1)), int(match.group(2))) for match in found if match]
    last = max(index for _, index in places)
    kinds = {
        (seed, scene.index): scene.kind
        for seed in {seed for seed, _ in places}
        for scene in scenes("calibration", last + 1, seed)
    }
    first = set(list(KINDS)[: len(KINDS) // 2])
    halves: dict[str, list[str]] = {"scene-types-1": [], "scene-types-2": []}
    for key, place in zip(own.images, places, strict=True):
        halves["scene-types-1" if kinds[place] in first else "scene-types-2"].append(key)
    return {name: own.only(keys) for name, keys in halves.items() if keys}
