"""Image specificity: the method with its own evidence, with that of another image, and with none.

Everything else stays: table, candidates, beta. The derangement is fixed by the seed; the cyclic shift gives each record the
evidence of the next; blind means DMRR = 0 for every token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reweigh.experiments.ablate.arms import derangement
from reweigh.paper.analyses.words import show
from reweigh.paper.studies.endtoend import EndToEnd, Given, difference
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import Row, estimate, find
from reweigh.paper.studies.sweep import AGAINST, Setting, Sweep

OWN, DERANGED, CYCLIC, BLIND = "own", "derangement", "cyclic", "blind"
OTHERS = (DERANGED, CYCLIC, BLIND)
GAP = " minus own"


class Specificity(Sweep):
    """CHAIR with the evidence of the own image and with substitutes."""

    name = "specificity"
    title = "Image specificity"
    reproduces = "Tab. image-specificity"

    def settings(self, material: Material, runs: EndToEnd) -> Iterator[Setting]:
        count = len(material.evaluation)
        donors = {
            DERANGED: Given(donors=derangement(count, material.seed).tolist()),
            CYCLIC: Given(donors=[*range(1, count), 0]),
            BLIND: Given(blind=True),
        }
        yield Setting(OWN, runs.rank(), note="the method as it is")
        for name, given in donors.items():
            yield Setting(name, runs.run(f"evidence-{name}", material.table, given=given))

    def rows(self, material: Material) -> list[Row]:
        rows = super().rows(material)
        runs = {
            one.name: one.run for one in self.settings(material, EndToEnd.of(material)) if one.run is not None
        }
        for name in OTHERS:
            gaps = difference(runs[OWN], runs[name], resamples=material.resamples, seed=material.seed)
            rows += [
                {"setting": name, "quantity": f"{figure}{GAP}", **estimate(metric), "note": ""}
                for figure, metric in gaps.items()
            ]
        return rows

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        own = find(rows, setting=OWN, quantity="chair_s" + AGAINST)
        lines = [
            f"With its own evidence CHAIR_S changes by {show(own, signed=True, unit=' points')} against the base."
        ]
        for name in OTHERS:
            gap = find(rows, setting=name, quantity="chair_s" + GAP)
            change = find(rows, setting=name, quantity="chair_s" + AGAINST)
            share = change["value"] / own["value"] if own["value"] else None
            part = "" if share is None else f", {100 * share:.0f}% of the own image's change"
            lines.append(
                f"{name}: {show(change, signed=True, unit=' points')}{part}; that is {show(gap, signed=True)} against the "
                f"own evidence{_verdict(gap, share)}"
            )
        return [lines[0], " ".join(lines[1:])]


def _verdict(gap: Row, share: float | None) -> str:
    """Whether a substitute does as in the paper: worse than the image's own evidence, less than half of its effect."""
    worse = gap["low"] is not None and gap["low"] > 0
    if not worse:
        return ": that it is worse, as the paper finds, does not show here."
    if share is not None and share >= 0.5:
        return ", worse as the paper finds; but it recovers more than half of the change, which the paper does not find."
    return ", as the paper finds."
