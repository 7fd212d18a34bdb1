"""Where edits land: the same magnitudes given to candidates in the order of the rank field or of the probability field.

At each step of the base answers both calibrated fields are taken (probability: log mean probability at the matched mean
edit). A field's order is by magnitude, descending; many magnitudes tie at 0 or 1, and then the larger unclipped deficit goes
first, the unregistered last, then the lower id. Donor: the field whose magnitudes are used. Assignment: the field whose
order is used. Effect = selectivity(rank order) - selectivity(probability order), in points. The role of a window is that of
the token emitted at its first switched step (``roles``); the effects of the roles sum to the effect. Share = among the
windows that only one assignment switches, those whose role is structural.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.benchmarks.bootstrap import Array, ratio
from reweigh.estimate import Estimate
from reweigh.files.artifacts import to_json
from reweigh.files.outputs import write_output
from reweigh.paper.analyses.roles import ROLES, WORDS, Role, piece_roles
from reweigh.paper.analyses.steps import (
    ONSET,
    PROBABILITY,
    RANK,
    WINDOW,
    Count,
    Field,
    Floats,
    count_windows,
    first_switch,
    kinds_of,
    selectivity,
    switches,
)
from reweigh.paper.bootstrap import bootstrap_counts
from reweigh.paper.corpus.image import StudyImage
from reweigh.paper.material import Material
from reweigh.paper.study import FRAGMENT, Entries, Entry, Study, finding, lacks_mentions, row
from reweigh.results.frame import Frame
from reweigh.results.html import element

ARMS = (RANK, PROBABILITY)
EFFECT, ROLE, SHARE = "effect", "role", "share"
STRUCTURAL: Role = "structural"
ALONE = "alone"
LIST = "structural-words.json"


class Quantity(NamedTuple):
    """An effect by donor, an effect by role, or a share by assignment."""

    group: str
    quantity: str
    at: str = WINDOW


@dataclass(frozen=True)
class Edits:
    """What a field does to the candidates of one step: unclipped deficits (C,), and strengths in [0, 1] (C,)."""

    deficit: Floats
    strength: Floats

    @classmethod
    def of(cls, field: Field, image: StudyImage, ids: NDArray[np.int64]) -> Edits:
        """The edits of some candidates of an image."""
        evidence = field.evidence(image, ids)
        return cls(field.deficits(ids, evidence), field.strengths(ids, evidence))

    def order(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Places of the candidates, the strongest edit first."""
        known = np.where(np.isnan(self.deficit), -np.inf, self.deficit)
        return np.lexsort((ids, -known, -self.strength)).astype(np.int64)


def allocate(donor: Edits, assignment: Edits, ids: NDArray[Any]) -> Floats:
    """The donor's magnitudes, descending, given to the candidates in the assignment's order."""
    edit = np.empty(len(ids))
    edit[assignment.order(ids)] = np.sort(donor.strength)[::-1]
    return edit


def allocation_counts(
    image: StudyImage, fields: Mapping[str, Field], roles: Sequence[Role], beta: float
) -> dict[Count, float]:
    """Counts of one image: windows and onsets that each donor and assignment switches, by kind and role.

    Windows that only one assignment switches are counted under the arms ``("alone", order)`` and their role.
    """
    pairs = [(donor, order) for donor in ARMS for order in ARMS]
    switched: dict[tuple[str, str], list[bool]] = {pair: [] for pair in pairs}
    for step in range(len(image)):
        ids, logits = image.step(step)
        both = {arm: Edits.of(fields[arm], image, ids) for arm in ARMS}
        for donor, order in pairs:
            edit = beta * allocate(both[donor], both[order], ids)
            switched[donor, order].append(switches(ids, logits, edit))
    onsets = [mention.onset for mention in image.mentions]
    first = {pair: [first_switch(flags, onset) for onset in onsets] for pair, flags in switched.items()}
    arms: dict[tuple[str, ...], list[bool]] = {}
    for pair in pairs:
        arms[(*pair, WINDOW)] = [step is not None for step in first[pair]]
        arms[(*pair, ONSET)] = [switched[pair][onset] for onset in onsets]
    own: dict[str, list[Role | None]] = {
        order: [None if step is None else roles[image.tokens[step]] for step in first[RANK, order]]
        for order in ARMS
    }
    arms |= {(ROLE, role, order): [one == role for one in own[order]] for role in ROLES for order in ARMS}
    counts = count_windows(kinds_of(image), arms)
    for order, other in (ARMS, ARMS[::-1]):
        alone = [one for one, two in zip(own[order], own[other], strict=True) if one and not two]
        counts[Count((ALONE, order), "")] = float(len(alone))
        counts[Count((ALONE, order), STRUCTURAL)] = float(alone.count(STRUCTURAL))
    return counts


def allocation_figures(counts: Mapping[Count, Array]) -> dict[Quantity, Array]:
    """Effects, effects by role and shares, from summed counts."""

    def effect(*arms: tuple[str, ...]) -> Array:
        rank, probability = (selectivity(counts, arm) for arm in arms)
        return np.asarray(rank - probability)

    found: dict[Quantity, Array] = {}
    for at in (WINDOW, ONSET):
        for donor in ARMS:
            found[Quantity(EFFECT, donor, at)] = effect(*((donor, order, at) for order in ARMS))
    for role in ROLES:
        found[Quantity(ROLE, role)] = effect(*((ROLE, role, order) for order in ARMS))
    for order in ARMS:
        alone = (ALONE, order)
        found[Quantity(SHARE, order)] = ratio(counts[Count(alone, STRUCTURAL)], counts[Count(alone, "")])
    return found


class Allocation(Study):
    """Effects of the assignment under both donors, by the role of the precursor, and at the onset."""

    name = "allocation"
    title = "Where edits land"
    labels = ("tab:allocation-mechanism",)
    files = (LIST, FRAGMENT)
    keys = (
        ("group", "effect, role (of the rank donor's effect), or share"),
        ("quantity", "the donor, the role, or the assignment that alone switches"),
        ("at", "window or onset"),
    )

    def unmet(self, material: Material) -> str | None:
        if (reason := lacks_mentions(material)) is not None:
            return reason
        empty = [arm for arm in ARMS if not len(material.arm(arm).table)]
        return f"no token is registered under {empty[0]}" if empty else None

    def compute(self, material: Material) -> Frame:
        pieces = material.evaluation.pieces()
        roles = piece_roles(pieces["pieces"], set(pieces["special"]))
        fields = {arm: Field.of(material.arm(arm), material.evaluation.vocab_size) for arm in ARMS}
        counts = [
            (image.number, allocation_counts(image, fields, roles, material.beta))
            for image in material.evaluation
        ]
        found = bootstrap_counts(counts, allocation_figures, **material.draws)
        return Frame(row(value, **figure._asdict()) for figure, value in found.items())

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        lines = [
            finding(
                f"the rank order switches more selectively (with the magnitudes of {donor})",
                frame.one(group=EFFECT, quantity=donor, at=WINDOW),
                unit=" points",
            )
            for donor in ARMS
        ]
        structural = frame.one(group=ROLE, quantity=STRUCTURAL).text(signed=True, unit=" points")
        parts = [f"Structural tokens account for {structural} of the effect with rank's magnitudes."]
        for arm in ARMS:
            share = frame.one(group=SHARE, quantity=arm)
            parts.append(
                f"The {arm} order alone switches no window."
                if share.value is None
                else f"Of the windows that only the {arm} order switches, {share.text(digits=1, unit='%')} are structural."
            )
        return [*lines, " ".join(parts)]

    def draw(self, frame: Frame, path: Path) -> None:
        from reweigh.results.charts import chart, dots

        with chart(path, columns=2, height=3.0, width_ratios=[3, 2]) as (left, right):
            effects = {f"{donor} donor": frame.one(group=EFFECT, quantity=donor, at=WINDOW) for donor in ARMS}
            effects |= {
                f"{donor} donor, onset": frame.one(group=EFFECT, quantity=donor, at=ONSET) for donor in ARMS
            }
            effects |= {role: frame.one(group=ROLE, quantity=role) for role in ROLES}
            dots(left, {"effect": effects}, zero=True, label="rank order minus probability order, points")
            shares = {f"{arm} only": frame.one(group=SHARE, quantity=arm) for arm in ARMS}
            dots(right, {"share": shares}, label="structural share, %")
            right.set_xlim(-3, 103)

    def extras(self, frame: Frame, material: Material, folder: Path) -> list[str]:
        """Publish the closed list of structural words with the result."""
        listed = {kind: sorted(words.split()) for kind, words in WORDS.items()}
        write_output(folder / LIST, to_json({STRUCTURAL: listed}))
        items = [element("li", element("b", kind), ": ", ", ".join(words)) for kind, words in listed.items()]
        summary = element("summary", "The words that count as structural")
        write_output(folder / FRAGMENT, element("details", summary, element("ul", *items)))
        return [LIST, FRAGMENT]

    def fill(self, frame: Frame) -> dict[str, Entries]:
        found: dict[Entry, Estimate] = {}
        for one in frame.pick(at=WINDOW):
            quantity = str(one["quantity"])
            if one["group"] == EFFECT:
                found[Entry(f"{quantity} donor", "effect")] = one.estimate
            elif one["group"] == ROLE:
                found[Entry(quantity, "effect")] = one.estimate
            else:
                found[Entry(f"{quantity} allocation only", "structural share %")] = one.estimate
        return {"tab:allocation-mechanism": found}
