"""Image specificity: the method with its own evidence, with that of another image, and with none.

Everything else stays: table, candidates, beta. The derangement is fixed by the seed; the cyclic shift gives each record the
evidence of the next; blind means DMRR = 0 for every token.
"""

from __future__ import annotations

from collections.abc import Iterator

from reweigh.estimate import Estimate
from reweigh.experiments.ablate.arms import derangement
from reweigh.paper.analyses.sweep import Setting, Sweep, change_of
from reweigh.paper.answers import BASE, Answers, Given
from reweigh.paper.material import Material
from reweigh.results.frame import Frame

OWN, DERANGED, CYCLIC, BLIND = "own", "derangement", "cyclic", "blind"


class Specificity(Sweep):
    """CHAIR with the evidence of the own image and with substitutes."""

    name = "specificity"
    title = "Image specificity"
    labels = ("tab:image-specificity",)
    references = (BASE, OWN)

    def settings(self, material: Material, answers: Answers) -> Iterator[Setting]:
        count = len(material.evaluation)
        given = {
            DERANGED: Given(donors=tuple(derangement(count, material.seed).tolist())),
            CYCLIC: Given(donors=(*range(1, count), 0)),
            BLIND: Given(blind=True),
        }
        yield Setting(OWN, answers.rank(), note="the method as it is")
        for name, evidence in given.items():
            yield Setting(name, answers.run(f"evidence-{name}", material.table, given=evidence))

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        own = change_of(frame, OWN)
        lines = []
        for name in (DERANGED, CYCLIC, BLIND):
            change, gap = change_of(frame, name), change_of(frame, name, OWN)
            share = change.number / own.value if own.value else None
            part = "" if share is None else f" ({100 * share:.0f}% of the change with own evidence)"
            lines.append(
                f"{name}: {change.text(signed=True, unit=' points')}{part}, that is {gap.text(signed=True)} against own "
                f"evidence. {verdict(gap, share)}"
            )
        first = (
            f"With its own evidence, the method changes CHAIR_S by {own.text(signed=True, unit=' points')}."
        )
        return [first, " ".join(lines)]


def verdict(gap: Estimate, share: float | None) -> str:
    """Whether a substitute does as in the paper: worse than the image's own evidence, less than half of its effect."""
    if gap.low is None or gap.low <= 0:
        return "The paper finds this worse; that is not confirmed here."
    if share is not None and share >= 0.5:
        return "As in the paper, this is worse; but more than half of the change remains, which the paper does not find."
    return "As in the paper, this is worse."
