"""Sweeps of the calibration, at the frozen operating point: its size, its images, and the rule of registration.

Sizes: the table registered again from nested prefixes of the calibration images, sorted by their keys; b0 is the pooled
median of each prefix. The prefix of all images must give the table in use, byte for byte, and reuses its run. Larger sizes
are marked: they need a larger panel.

Corpora: ``own`` is that of the table in use. The embedded world adds mixes of scene types, halves of its own images, which
need no model. Finished calibrations of the same model in the folder ``corpora`` beside the runs (``reweigh calibrate MODEL
IMAGES -o STUDY/corpora/NAME``) are further corpora, and together with the own one the pool.

Rules: reference stability against a minimum number of observations, from the same observations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from reweigh.calibration.result import MANIFEST, Calibration
from reweigh.errors import CalibrationError, MismatchError
from reweigh.estimate import Estimate
from reweigh.files.artifacts import sha256_file
from reweigh.method.references import rule_named
from reweigh.paper.analyses.sweep import DEPLOYED, DRAWN, Setting, Sweep, change_of, settings_of
from reweigh.paper.answers import BASE, Answers
from reweigh.paper.material import Material
from reweigh.paper.study import Entry, finding
from reweigh.results.charts import chart, lines
from reweigh.results.frame import Frame
from reweigh.tables.observations import Observations, merge
from reweigh.tables.table import ReferenceTable
from reweigh.world.kinds import KINDS
from reweigh.world.scenes import scenes

SIZES = (10, 25, 50, 100, 200, 500, 700, 1000)
LARGER = "needs a larger panel of calibration images"
POINT = "tab:operating-points"
RULES = ("stable", "count-5", "count-10")
OWN, POOLED = "own", "pooled"
FOLDER = "corpora"
SCENE = re.compile(r"calibration-(\d+)-(\d+)\.png#")


def register(part: Observations, deployed: ReferenceTable, rule: str | None = None) -> ReferenceTable:
    """The table of some observations, registered as the table in use was, or by another rule."""
    name = rule or str(deployed.made_with["rule"])
    about = {**deployed.made_with, "rule": name, "images": len(part.images), "corpus": part.corpus}
    return ReferenceTable.build(deployed.layer, part.register(deployed.layer, rule=rule_named(name)), about)


class Sizes(Sweep):
    """CHAIR over the number of calibration images."""

    name = "sizes"
    title = "Calibration size"
    labels = ("fig:calibration-size", "tab:calibration-size", POINT)

    def settings(self, material: Material, answers: Answers) -> Iterator[Setting]:
        observations = material.panel()
        panel = len(observations.images)
        for size in sorted({*SIZES, panel}):
            if size > panel:
                yield Setting(str(size), None, note=LARGER)
                continue
            try:
                table = prefix_table(observations, size, material.table)
            except CalibrationError as error:
                yield Setting(str(size), None, note=str(error.message))
                continue
            counts = {"registered": len(table), "b0": table.scale}
            if size == panel:
                require_same(table, material.table)
                yield Setting(str(size), answers.rank(), counts, DEPLOYED)
            else:
                yield Setting(str(size), answers.run(f"images-{size}", table), counts)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        sizes, deployed = settings_of(frame), deployed_size(frame)
        changes = [change_of(frame, size).text(signed=True, unit=" points") for size in (sizes[0], deployed)]
        told = [
            f"The prefix of all {deployed} images gives the table in use byte for byte.",
            f"With {sizes[0]} images, CHAIR_S changes by {changes[0]}; with {deployed}, by {changes[1]}.",
        ]
        if "100" in sizes:
            claim = "100 images are enough to lower CHAIR_S"
            told.append(finding(claim, change_of(frame, "100"), above=False, unit=" points"))
        return told

    def draw(self, frame: Frame, path: Path) -> None:
        deployed = deployed_size(frame)
        with chart(path, columns=len(DRAWN), height=2.5) as panels:
            for panel, (figure, label) in zip(panels, DRAWN.items(), strict=True):
                shown = frame.pick(quantity=figure, against=None)
                lines(
                    panel,
                    {"": [(float(size), shown.one(setting=size)) for size in settings_of(frame)]},
                    across="calibration images",
                    up=label,
                    level=("base", shown.one(setting=BASE).value),
                    marked=(float(deployed), shown.one(setting=deployed).value),
                )
                panel.set_xscale("log")

    def fill(self, frame: Frame) -> dict[str, dict[Entry, Estimate]]:
        """The sweep, and the table in use beside the paper's operating points."""
        point = {
            Entry("operating point", str(one["quantity"])): one.estimate
            for one in frame.pick(note=DEPLOYED, quantity=("registered", "b0"))
        }
        return {**super().fill(frame), POINT: point}


def deployed_size(frame: Frame) -> str:
    """The size whose table is in use."""
    [size] = frame.pick(note=DEPLOYED).distinct("setting")
    return str(size)


def prefix_table(observations: Observations, size: int, table: ReferenceTable) -> ReferenceTable:
    """The table of the first images of a sorted panel, registered as ``table`` was."""
    return register(observations.only(observations.images[:size]), table)


def require_same(found: ReferenceTable, deployed: ReferenceTable) -> None:
    """Refuse a sweep whose largest prefix is not the table in use."""
    if found.fingerprint != deployed.fingerprint:
        raise MismatchError(
            f"all {found.made_with['images']} calibration images give a table with hash {found.fingerprint[:12]}, the table "
            f"in use has {deployed.fingerprint[:12]}",
            hint="keep the observations beside the table, as `reweigh calibrate` leaves them",
        )


class Rules(Sweep):
    """CHAIR and the number of registered tokens under each rule."""

    name = "rules"
    title = "Registration rules"
    labels = ("tab:registration-rules",)

    def settings(self, material: Material, answers: Answers) -> Iterator[Setting]:
        for rule in RULES:
            if rule == material.rule:
                yield Setting(rule, answers.rank(), {"registered": len(material.table)}, DEPLOYED)
            else:
                table = register(material.panel(), material.table, rule)
                yield Setting(rule, answers.run(f"rule-{rule}", table), {"registered": len(table)})

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        told = []
        for rule in RULES:
            size = frame.one(setting=rule, quantity="registered").number
            change = change_of(frame, rule).text(signed=True, unit=" points")
            told.append(f"{rule} registers {size:,.0f} tokens and changes CHAIR_S by {change}")
        values = [frame.one(setting=rule, quantity="chair_s", against=None).number for rule in RULES]
        return [
            "; ".join(told) + ".",
            f"CHAIR_S differs by at most {max(values) - min(values):.1f} points between the rules; in the paper, by 1.2.",
        ]


class Corpora(Sweep):
    """CHAIR with tables of other calibration images."""

    name = "corpora"
    title = "Calibration corpus"
    labels = ("tab:calibration-corpus",)

    def inputs(self, material: Material) -> dict[str, str]:
        return {folder.name: sha256_file(folder / MANIFEST) for folder in calibrations(material)}

    def settings(self, material: Material, answers: Answers) -> Iterator[Setting]:
        own, deployed = material.panel(), material.table
        counts = {"images": len(own.images), "registered": len(deployed)}
        yield Setting(OWN, answers.rank(), counts, DEPLOYED)
        others = {folder.name: observed(folder, own, deployed) for folder in calibrations(material)}
        parts = {**scene_mixes(own), **others}
        if others:
            parts[POOLED] = merge([own, *others.values()])
        for name, part in parts.items():
            table = register(part, deployed)
            counts = {"images": len(part.images), "registered": len(table)}
            yield Setting(name, answers.run(f"corpus-{name}", table), counts)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        changes = [
            f"{name} ({frame.one(setting=name, quantity='images').number:,.0f} images) "
            + change_of(frame, name).text(signed=True, unit=" points")
            for name in settings_of(frame)
        ]
        told = [f"Change of CHAIR_S against the base, by calibration corpus: {'; '.join(changes)}."]
        if not calibrations(material):
            told.append(
                f"No corpus from another source was given; put a finished calibration into {FOLDER}/NAME of this folder to "
                "add one."
            )
        return told


def calibrations(material: Material) -> list[Path]:
    """Folders of finished calibrations beside the runs."""
    beside = material.beside(FOLDER)
    return [] if beside is None else sorted(page.parent for page in beside.glob(f"*/{MANIFEST}"))


def observed(folder: Path, own: Observations, deployed: ReferenceTable) -> Observations:
    """The observations of a finished calibration at the layer in use; one of another model is refused."""
    found = Calibration.load(folder)
    mine, theirs = (made.get("identity") for made in (deployed.made_with, found.made_with))
    if isinstance(mine, dict) and isinstance(theirs, dict):
        mine, theirs = ({**one, "model_id": ""} for one in (mine, theirs))
    if mine != theirs:
        raise MismatchError(
            f"{folder} was calibrated with another model than the table in use",
            hint="calibrate this model on those images, with the same settings",
        )
    return found.observations.at(own.layers)


def scene_mixes(own: Observations) -> dict[str, Observations]:
    """Halves of the embedded world's calibration images by scene type; none for other images."""
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
