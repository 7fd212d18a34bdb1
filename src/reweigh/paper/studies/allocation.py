"""Where edits land: the same magnitudes given to candidates in the order of the rank field or of the probability field.

At each step of the base answers both calibrated fields are taken (probability: log mean probability at the matched mean
edit). Donor = the field whose magnitudes are used, assignment = the field whose order is used (see ``analyses.allocation``
for ties). Effect = selectivity(rank order) - selectivity(probability order), in points. The role of a window is that of the
token emitted at its first switched step (``analyses.roles``); effects of the roles sum to the effect. Share = among the
windows that one assignment alone switches, those whose role is structural.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.benchmarks.bootstrap import Array, intervals, ratio
from reweigh.benchmarks.types import Item
from reweigh.files.artifacts import write_json, write_text
from reweigh.paper.analyses.allocation import StepField, allocate
from reweigh.paper.analyses.roles import ROLES, WORDS, Role, piece_roles
from reweigh.paper.analyses.windows import count_windows, first_switch, selectivity, switches
from reweigh.paper.analyses.words import finding, show
from reweigh.paper.corpus.image import StudyImage
from reweigh.paper.studies.detection import ONSET, WINDOW, kinds_of, lacks_mentions
from reweigh.paper.studies.endtoend import PROBABILITY, RANK
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.run import FRAGMENT
from reweigh.paper.studies.study import (
    ESTIMATE,
    Column,
    Row,
    Study,
    as_estimate,
    estimate,
    find,
    too_few_images,
)
from reweigh.results.html import element

ARMS = (RANK, PROBABILITY)
EFFECT, ROLE, SHARE = "effect", "role", "share"
STRUCTURAL: Role = "structural"
LIST = "structural-words.json"


class Allocation(Study):
    """Effects of the assignment under both donors, by the role of the precursor, and at the onset."""

    name = "allocation"
    title = "Where edits land"
    reproduces = "Tab. allocation-mechanism"
    columns = (
        Column("group", "text", "effect, role (of the rank donor's effect), or share"),
        Column("quantity", "text", "the donor, the role, or the assignment that alone switches"),
        Column("at", "text", "window or onset"),
        *ESTIMATE,
    )

    def unmet(self, material: Material) -> str | None:
        return too_few_images(material) or lacks_mentions(material) or lacks_tokens(material)

    def rows(self, material: Material) -> list[Row]:
        pieces = material.evaluation.pieces()
        roles = piece_roles(pieces["pieces"], set(pieces["special"]))
        fields = {arm: ArmField.of(material, arm) for arm in ARMS}
        items = [
            Item(
                id=image.id, image=image.number, counts=allocation_counts(image, fields, roles, material.beta)
            )
            for image in material.evaluation
        ]
        found = intervals(items, allocation_figures, resamples=material.resamples, seed=material.seed)
        rows: list[Row] = []
        for key, metric in found.items():
            group, quantity, at = key.split("|")
            rows.append({"group": group, "quantity": quantity, "at": at, **estimate(metric)})
        return rows

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        lines = []
        for donor in ARMS:
            row = find(rows, group=EFFECT, quantity=donor, at=WINDOW)
            claim = f"the rank order switches more selectively (magnitudes of {donor})"
            lines.append(finding(claim, row, unit=" points"))
        structural = find(rows, group=ROLE, quantity=STRUCTURAL, at=WINDOW)
        lines.append(
            f"Structural tokens account for {show(structural, signed=True, unit=' points')} of the effect with rank's "
            f"magnitudes. {self._shares(rows)}"
        )
        return lines

    def _shares(self, rows: Sequence[Row]) -> str:
        lines = []
        for arm in ARMS:
            share = find(rows, group=SHARE, quantity=arm, at=WINDOW)
            if share["value"] is None:
                lines.append(f"No window is switched by the {arm} order alone.")
            else:
                words = show(share, digits=1, unit="%")
                lines.append(f"Of the windows that the {arm} order alone switches {words} are structural.")
        return " ".join(lines)

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, dots

        with chart(path, columns=2, height=3.0, width_ratios=[3, 2]) as (left, right):
            names: dict[str, tuple[str, str, str]] = {
                **{f"{donor} donor": (EFFECT, donor, WINDOW) for donor in ARMS},
                **{f"{donor} donor, onset": (EFFECT, donor, ONSET) for donor in ARMS},
                **{role: (ROLE, role, WINDOW) for role in ROLES},
            }
            effects = {
                name: as_estimate(find(rows, group=group, quantity=quantity, at=at))
                for name, (group, quantity, at) in names.items()
            }
            dots(left, {"effect": effects}, zero=True, label="rank order minus probability order, points")
            shares = {
                f"{arm} only": as_estimate(find(rows, group=SHARE, quantity=arm, at=WINDOW)) for arm in ARMS
            }
            dots(right, {"share": shares}, label="structural share, %")
            right.set_xlim(-3, 103)

    def extras(self, rows: Sequence[Row], material: Material, folder: Path) -> list[str]:
        """Publish the closed list of structural words with the result."""
        listed = {kind: sorted(words.split()) for kind, words in WORDS.items()}
        write_json(folder / LIST, {STRUCTURAL: listed})
        items = [element("li", element("b", kind), ": ", ", ".join(words)) for kind, words in listed.items()]
        summary = element("summary", "The words that count as structural")
        write_text(folder / FRAGMENT, element("details", summary, element("ul", *items)))
        return [LIST, FRAGMENT]


@dataclass(frozen=True, eq=False)
class ArmField:
    """What an arm does to any candidates: its vector, its references over the vocabulary and its scale."""

    vector: str
    references: NDArray[np.float64]
    scale: float

    @classmethod
    def of(cls, material: Material, arm: str) -> ArmField:
        """The field of an arm."""
        found = material.arm(arm)
        return cls(found.readout, found.table.over(material.evaluation.vocab_size), found.table.scale)

    def at(self, image: StudyImage, ids: NDArray[Any]) -> StepField:
        """The field at the candidates of one step."""
        return StepField.of(image.evidence[self.vector][ids], self.references[ids], self.scale)


def lacks_tokens(material: Material) -> str | None:
    """Why edits cannot be made, if they cannot."""
    empty = [arm for arm in ARMS if not len(material.arm(arm).table)]
    return f"no token is registered under {empty[0]}" if empty else None


def allocation_counts(
    image: StudyImage, fields: Mapping[str, ArmField], roles: Sequence[Role], beta: float
) -> dict[str, float]:
    """Counts of one image: windows and onsets that each donor and assignment switches, by kind and role."""
    switched: dict[str, list[bool]] = {f"{donor}|{order}": [] for donor in ARMS for order in ARMS}
    for step in range(len(image)):
        ids, logits = image.step(step)
        both = {arm: fields[arm].at(image, ids) for arm in ARMS}
        for donor in ARMS:
            for order in ARMS:
                edit = beta * allocate(both[donor], both[order], ids)
                switched[f"{donor}|{order}"].append(switches(ids, logits, edit))
    onsets = [mention.onset for mention in image.mentions]
    first = {name: [first_switch(flags, onset) for onset in onsets] for name, flags in switched.items()}
    arms = {f"{name}|{WINDOW}": [step is not None for step in steps] for name, steps in first.items()}
    arms |= {f"{name}|{ONSET}": [flags[onset] for onset in onsets] for name, flags in switched.items()}
    own: dict[str, list[Role | None]] = {}
    for order in ARMS:
        steps = first[f"{RANK}|{order}"]
        own[order] = [None if step is None else roles[image.tokens[step]] for step in steps]
        arms |= {f"{role}|{order}": [one == role for one in own[order]] for role in ROLES}
    counts = count_windows(kinds_of(image), arms)
    for order, other in (ARMS, ARMS[::-1]):
        alone = [one for one, two in zip(own[order], own[other], strict=True) if one and not two]
        counts[f"alone {order}"] = float(len(alone))
        counts[f"alone {order} structural"] = float(alone.count(STRUCTURAL))
    return counts


def allocation_figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Effects, effects by role and shares, from summed counts."""
    found: dict[str, Array] = {}
    for at in (WINDOW, ONSET):
        for donor in ARMS:
            rank, probability = (selectivity(counts, f"{donor}|{order}|{at}") for order in ARMS)
            found[f"{EFFECT}|{donor}|{at}"] = np.asarray(rank - probability)
    for role in ROLES:
        rank, probability = (selectivity(counts, f"{role}|{order}") for order in ARMS)
        found[f"{ROLE}|{role}|{WINDOW}"] = np.asarray(rank - probability)
    for order in ARMS:
        found[f"{SHARE}|{order}|{WINDOW}"] = ratio(
            counts[f"alone {order} structural"], counts[f"alone {order}"]
        )
    return found
