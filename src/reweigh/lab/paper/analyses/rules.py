"""Registration rules: reference stability against a minimum number of observations.

The table is registered again from the observations of the table in use, once by each rule, at the frozen operating point.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reweigh.lab.arms.ablate.arms import RANK, Variant
from reweigh.lab.bootstrap import bootstrap_counts, ratio
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses.steps import Field
from reweigh.lab.paper.analyses.sweep import DEPLOYED, Setting, Sweep, change_of
from reweigh.lab.paper.material import Material, register
from reweigh.lab.paper.study import Filled

RULES = ("stable", "count-5", "count-10")
UNREGISTERED = "unregistered %"
"""Candidates of the base answers that have no reference, so that the method abstains."""
TABLE, TEXT = "tab:registration-rules", "text:abstention"


class Rules(Sweep):
    """CHAIR and the number of registered tokens under each rule."""

    name = "rules"
    title = "Registration rules"
    labels = (TABLE, TEXT)

    def settings(self, material: Material) -> Iterator[Setting]:
        for rule in RULES:
            if rule == material.rule:
                counts: dict[str, float | Estimate] = {
                    "registered": len(material.table),
                    UNREGISTERED: unregistered(material),
                }
                yield Setting(rule, material.rank(), counts, DEPLOYED)
            else:
                table = register(material.panel(), material.table, rule)
                yield Setting(rule, material.run(Variant(f"rule-{rule}", table)), {"registered": len(table)})

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        told = []
        for rule in RULES:
            size = frame.one(setting=rule, quantity="registered").number
            change = change_of(frame, rule).text(signed=True, unit=" points")
            told.append(f"{rule} ({size:,.0f} tokens) {change}")
        values = [frame.one(setting=rule, quantity="chair_s", against=None).number for rule in RULES]
        return [
            f"Change of CHAIR_S against the base, by rule: {'; '.join(told)}.",
            f"CHAIR_S differs by at most {max(values) - min(values):.1f} points between the rules; in the paper, by at most "
            "1.2 points for any model. These are point estimates.",
            *(
                f"{one.estimate.text(digits=1, unit='%')} of the candidates have no reference (3.5% in the paper)."
                for one in frame.pick(quantity=UNREGISTERED)
            ),
        ]

    def entries(self, frame: Frame) -> Iterator[Filled]:
        for one in super().entries(frame):
            share = one.metric == UNREGISTERED
            yield one._replace(row="No abstention", label=TEXT) if share else one._replace(label=TABLE)


def unregistered(material: Material) -> Estimate:
    """Return the share of candidate positions of the base answers whose token has no reference, in percent."""
    field = Field.of(material.arm(RANK), material.evaluation.vocab_size)
    counts = []
    for image in material.evaluation:
        known = field.registered(image.candidates)
        counts.append((image.number, {"candidates": known.size, "unregistered": int(np.sum(~known))}))
    found = bootstrap_counts(
        counts,
        lambda totals: {UNREGISTERED: ratio(totals["unregistered"], totals["candidates"])},
        **material.draws,
    )
    return found[UNREGISTERED]
