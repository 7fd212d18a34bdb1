"""Image specificity: the method with the evidence of its own image, with that of another image, and with none.

Everything else stays: table, candidates, beta. The derangement is fixed by the seed; the cyclic shift gives each record the
evidence of the next; blind means DMRR = 0 for every token. The frame has the CHAIR figures of each, and paired differences
to the base and to the method with its own evidence.
"""

from __future__ import annotations

from collections.abc import Iterator

from reweigh.lab.arms.ablate.arms import Variant, derangement
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses.sweep import Setting, Sweep, change_of
from reweigh.lab.paper.material import BASE, Material

OWN, DERANGED, CYCLIC, BLIND = "own", "derangement", "cyclic", "blind"
SUBSTITUTES = {
    DERANGED: "evidence of another image",
    CYCLIC: "evidence of the next image",
    BLIND: "no evidence",
}


class Specificity(Sweep):
    """CHAIR with the evidence of the own image and with substitutes."""

    name = "specificity"
    title = "Image specificity"
    labels = ("tab:image-specificity",)
    references = (BASE, OWN)

    def settings(self, material: Material) -> Iterator[Setting]:
        count, table = len(material.evaluation), material.table
        yield Setting(OWN, material.rank(), note="the method as it is")
        for name, donors in (
            (DERANGED, derangement(count, material.runs.seed).tolist()),
            (CYCLIC, [*range(1, count), 0]),
        ):
            yield Setting(name, material.run(Variant(f"evidence-{name}", table, donors=donors)))
        yield Setting(BLIND, material.run(Variant(f"evidence-{BLIND}", table, blind=True)))

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        own = change_of(frame, OWN)
        told = [
            f"With its own evidence, the method changes CHAIR_S by {own.text(signed=True, unit=' points')}."
        ]
        for name, words in SUBSTITUTES.items():
            change, gap = change_of(frame, name), change_of(frame, name, OWN)
            share = change.number / own.value if own.value else None
            part = "" if share is None else f", {100 * share:.0f}% of that"
            told.append(
                f"With {words} ({name}), the change is {change.text(signed=True, unit=' points')}{part}; the difference to "
                f"own evidence is {gap.text(signed=True, unit=' points')}. {verdict(gap, share)}"
            )
        return told


def verdict(gap: Estimate, share: float | None) -> str:
    """Say whether a substitute does as in the paper: worse than own evidence, with less than half of its effect."""
    if gap.reason is not None:
        return f"Whether this is worse, as in the paper, cannot be decided here: {gap.reason}."
    if gap.low is None or gap.low <= 0:
        return "The paper finds this worse; that is not confirmed here."
    if share is not None and share >= 0.5:
        return "As in the paper, this is worse; but at least half of the change remains, which the paper does not find."
    return "As in the paper, this is worse."
