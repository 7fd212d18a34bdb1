"""Calibration corpora: the frozen operating point with tables from other images.

The own corpus is the table in use. The embedded world adds mixes of scene types, halves of its own images, which need no
model. Finished calibrations of the same model in the folder ``corpora`` beside the runs (``reweigh calibrate MODEL IMAGES -o
STUDY/corpora/NAME``) are further corpora, and together with the own one the pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from reweigh.calibration.result import MANIFEST, Calibration
from reweigh.errors import MismatchError
from reweigh.files.artifacts import sha256_file
from reweigh.method.references import rule_named
from reweigh.paper.analyses.words import show
from reweigh.paper.studies.endtoend import BASE, EndToEnd
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import Row, find
from reweigh.paper.studies.sweep import AGAINST, Setting, Sweep, settings_of
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
    reproduces = "Tab. calibration-corpus"

    def inputs(self, material: Material) -> dict[str, str]:
        return {folder.name: sha256_file(folder / MANIFEST) for folder in calibrations(material)}

    def settings(self, material: Material, runs: EndToEnd) -> Iterator[Setting]:
        own, deployed = material.panel(), material.table
        counts = {"images": len(own.images), "registered": len(deployed)}
        yield Setting(OWN, runs.rank(), counts, "the table in use")
        others = {folder.name: observed(folder, own, deployed) for folder in calibrations(material)}
        parts = {**scene_mixes(own), **others}
        if others:
            parts[POOLED] = merge([own, *others.values()])
        for name, part in parts.items():
            table = table_of(part, deployed)
            counts = {"images": len(part.images), "registered": len(table)}
            yield Setting(name, runs.run(f"corpus-{name}", table), counts)

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        changes = [
            f"{name} ({find(rows, setting=name, quantity='images')['value']:,.0f} images) "
            + show(find(rows, setting=name, quantity="chair_s" + AGAINST), signed=True, unit=" points")
            for name in settings_of(rows)
            if name != BASE
        ]
        lines = [f"CHAIR_S against the base by calibration corpus: {'; '.join(changes)}."]
        if not calibrations(material):
            lines.append(
                f"No corpus of another source was given; a finished calibration in {FOLDER}/NAME of this folder is one more."
            )
        return lines


def calibrations(material: Material) -> list[Path]:
    """Folders of finished calibrations beside the runs."""
    if material.rerun is None:
        return []
    return sorted(page.parent for page in (material.rerun.folder.parent / FOLDER).glob(f"*/{MANIFEST}"))


def observed(folder: Path, own: Observations, deployed: ReferenceTable) -> Observations:
    """The observations of a finished calibration at the layer in use; one of another model is refused."""
    found = Calibration.load(folder)
    seen = found.observations
    mine, theirs = (made.get("identity") for made in (deployed.made_with, found.made_with))
    if isinstance(mine, dict) and isinstance(theirs, dict):
        mine, theirs = ({**one, "model_id": ""} for one in (mine, theirs))
    if mine != theirs:
        raise MismatchError(
            f"{folder} was calibrated with another model than the table in use",
            hint="calibrate this model on those images, at the same settings",
        )
    return seen.at(own.layers)


def table_of(part: Observations, deployed: ReferenceTable) -> ReferenceTable:
    """The table of some observations, registered as the table in use was."""
    made_with = {**deployed.made_with, "images": len(part.images), "corpus": part.corpus}
    rule = rule_named(str(deployed.made_with["rule"]))
    return ReferenceTable.build(deployed.layer, part.register(deployed.layer, rule=rule), made_with)


def scene_mixes(own: Observations) -> dict[str, Observations]:
    """Halves of the embedded world's calibration images by scene type; none for other images."""
    found = [SCENE.match(key) for key in own.images]
    if not found or not all(found):
        return {}
    seeds = {int(match.group(1)) for match in found if match}
    last = max(int(match.group(2)) for match in found if match)
    kinds = {
        (seed, scene.index): scene.kind for seed in seeds for scene in scenes("calibration", last + 1, seed)
    }
    names = list(KINDS)
    first = set(names[: len(names) // 2])
    halves: dict[str, list[str]] = {"scene-types-1": [], "scene-types-2": []}
    for key, match in zip(own.images, found, strict=True):
        if match:
            kind = kinds[int(match.group(1)), int(match.group(2))]
            halves["scene-types-1" if kind in first else "scene-types-2"].append(key)
    return {name: own.only(keys) for name, keys in halves.items() if keys}
