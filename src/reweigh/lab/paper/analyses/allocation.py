"""Where edits land: the same magnitudes given to candidates in the order of the rank field or of the probability field.

At each step of the base answers both calibrated fields are taken (probability: log mean probability at the matched mean
edit). A field's order is by magnitude, descending; many magnitudes tie at 0 or 1, and then the larger unclipped deficit goes
first, the unregistered last, then the lower id. Donor: the field whose magnitudes are used. Assignment: the field whose
order is used. Effect = selectivity(rank order) - selectivity(probability order), in points. The role of a window is that of
the token emitted at its first switched step; the effects of the roles sum to the effect. Share = among the windows that only
one assignment switches, those whose role is structural.

The role of a token follows from its piece alone, without a tagger and without context. In this order: *special* (control
tokens, bytes that are not text), *punctuation* (no letter and no digit: marks, blanks, line ends), *special* again for
pieces inside a word, *structural* (a word of the closed list in ``structural_words.json``), else *lexical*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.files.artifacts import read_json, to_json
from reweigh.files.outputs import write_output
from reweigh.lab.arms.ablate.arms import RANK
from reweigh.lab.bootstrap import Array, bootstrap_counts, ratio
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.analyses.steps import (
    ONSET,
    WINDOW,
    Count,
    Field,
    Floats,
    count_switches,
    first_switch,
    selectivity,
    switches,
)
from reweigh.lab.paper.corpus.image import StudyImage
from reweigh.lab.paper.material import PROBABILITY, Material
from reweigh.lab.paper.study import (
    FRAGMENT,
    Dots,
    Filled,
    Study,
    both_kinds,
    enough_images,
    finding,
    mentions_of,
    registered,
    row,
    too_few_for,
)
from reweigh.lab.views.html import part

Role = Literal["structural", "lexical", "punctuation", "special"]
ROLES: tuple[Role, ...] = ("structural", "lexical", "punctuation", "special")
STARTS = ("▁", "Ġ", " ")
"""How tokenizers mark a word's first piece."""
INSIDE = "##"
"""How others mark every further piece."""

WORDS: dict[str, str] = read_json(Path(__file__).with_name("structural_words.json"))
"""The closed list of function words, by their kind."""
FUNCTION_WORDS = frozenset(word for words in WORDS.values() for word in words.split())

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
        """Compute the edits of some candidates of an image."""
        evidence = field.evidence(image, ids)
        return cls(field.deficits(ids, evidence), field.strengths(ids, evidence))

    def order(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the places of the candidates, the strongest edit first."""
        known = np.where(np.isnan(self.deficit), -np.inf, self.deficit)
        return np.lexsort((ids, -known, -self.strength)).astype(np.int64)


def allocate(donor: Edits, assignment: Edits, ids: NDArray[Any]) -> Floats:
    """Give the donor's magnitudes, descending, to the candidates in the assignment's order."""
    edit = np.empty(len(ids))
    edit[assignment.order(ids)] = np.sort(donor.strength)[::-1]
    return edit


def allocation_counts(
    image: StudyImage, fields: Mapping[str, Field], roles: Sequence[Role], beta: float
) -> dict[Count, float]:
    """Count the windows and onsets of one image that each donor and assignment switches, by kind and role.

    Windows that only one assignment switches are counted under the arms ``("alone", order)`` and their role.
    """
    pairs = [(donor, order) for donor in ARMS for order in ARMS]
    switched: dict[tuple[str, ...], list[bool]] = {pair: [] for pair in pairs}
    for ids, logits in image.steps():
        both = {arm: Edits.of(fields[arm], image, ids) for arm in ARMS}
        for donor, order in pairs:
            edit = beta * allocate(both[donor], both[order], ids)
            switched[donor, order].append(switches(ids, logits, edit))
    own: dict[str, list[Role | None]] = {}
    for order in ARMS:
        first = (first_switch(switched[RANK, order], mention.onset) for mention in image.mentions)
        own[order] = [None if step is None else roles[image.tokens[step]] for step in first]
    by_role: dict[tuple[str, ...], list[bool]] = {
        (ROLE, role, order): [one == role for one in own[order]] for role in ROLES for order in ARMS
    }
    counts = count_switches(image, switched, by_role)
    for order, other in (ARMS, ARMS[::-1]):
        alone = [one for one, two in zip(own[order], own[other], strict=True) if one and not two]
        counts[Count((ALONE, order), "")] = float(len(alone))
        counts[Count((ALONE, order), STRUCTURAL)] = float(alone.count(STRUCTURAL))
    return counts


def allocation_figures(counts: Mapping[Count, Array]) -> dict[Quantity, Array]:
    """Compute effects, effects by role and shares from summed counts."""

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


def dot_name(one: Row) -> str:
    """Name an effect in the figure: by its donor, or by its role."""
    if one["group"] == ROLE:
        return str(one["quantity"])
    return f"{one['quantity']} donor" + (", onset" if one["at"] == ONSET else "")


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
    needs = (enough_images, both_kinds, registered(*ARMS))
    panels = (
        Dots("rank order minus probability order, points", {"group": (EFFECT, ROLE)}, dot_name, zero=True),
        Dots("structural share, %", {"group": SHARE}, lambda one: f"{one['quantity']} only"),
    )

    def compute(self, material: Material) -> Frame:
        roles = piece_roles(*material.pieces())
        fields = {arm: Field.of(material.arm(arm), material.evaluation.vocab_size) for arm in ARMS}
        counts = [
            (image.number, allocation_counts(image, fields, roles, material.beta))
            for image in material.evaluation
        ]
        found = bootstrap_counts(counts, allocation_figures, **material.draws)
        return Frame(row(value, **figure._asdict()) for figure, value in found.items())

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        few = too_few_for(material, mentions_of(material))
        lines = [
            finding(
                f"the rank order switches more selectively (with the magnitudes of {donor})",
                frame.one(group=EFFECT, quantity=donor, at=WINDOW),
                few=few,
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

    def extras(self, frame: Frame, material: Material, folder: Path) -> None:
        """Publish the closed list of structural words with the result."""
        listed = {kind: sorted(words.split()) for kind, words in WORDS.items()}
        write_output(folder / LIST, to_json({STRUCTURAL: listed}))
        items = [(kind, ", ".join(words)) for kind, words in listed.items()]
        write_output(folder / FRAGMENT, part("definitions", "The words that count as structural", items))

    def entries(self, frame: Frame) -> Iterator[Filled]:
        for one in frame.pick(at=WINDOW):
            if one["group"] == SHARE:
                yield Filled(f"{one['quantity']} allocation only", "structural share %", one.estimate)
            else:
                yield Filled(dot_name(one), "effect", one.estimate)


def role_of(text: str, *, starts_word: bool, special: bool = False) -> Role:
    """Return the role of a piece whose text, without marks, is ``text``."""
    bare = text.strip()
    if special or "\ufffd" in bare:
        return "special"
    if not any(letter.isalnum() for letter in bare):
        return "punctuation"
    if not starts_word:
        return "special"
    return "structural" if bare.lower() in FUNCTION_WORDS else "lexical"


def piece_roles(pieces: Sequence[str | None], special: Collection[int]) -> list[Role]:
    """Return the role of every token by its piece; None is a row of the head without a piece."""
    marked = any(piece.startswith(STARTS) for piece in pieces if piece is not None)
    found: list[Role] = []
    for token, (piece, text) in enumerate(zip(pieces, piece_texts(pieces), strict=True)):
        if piece is None:
            found.append("special")
            continue
        starts = piece.startswith(STARTS) if marked else not piece.startswith(INSIDE)
        found.append(role_of(text, starts_word=starts, special=token in special))
    return found


def piece_texts(pieces: Sequence[str | None]) -> list[str]:
    """Return the text of every piece, without marks; empty for a row without a piece."""
    by_bytes = any(piece.startswith("Ġ") for piece in pieces if piece is not None)
    return [piece_text(piece or "", by_bytes=by_bytes) for piece in pieces]


def piece_text(piece: str, *, by_bytes: bool) -> str:
    """Return the text of a piece, without marks; bytes that are not text become U+FFFD."""
    if by_bytes:
        letters = _byte_letters()
        if all(letter in letters for letter in piece):
            return bytes(letters[letter] for letter in piece).decode("utf-8", errors="replace")
    if piece.startswith("<0x") and piece.endswith(">") and len(piece) == 6:
        return bytes([int(piece[3:5], 16)]).decode("utf-8", errors="replace")
    return piece.replace("▁", " ").removeprefix(INSIDE)


@cache
def _byte_letters() -> dict[str, int]:
    """Map the letters of byte-level tokenizers to bytes: printable ones are themselves, others start at U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
