"""Registration rules: reference stability against a minimum number of observations.

The table is registered again from the observations of the table in use, once by each rule, at the frozen operating point.
"""

from __future__ import annotations

from collections.abc import Iterator

from reweigh.lab.arms.ablate.arms import Variant
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses.sweep import DEPLOYED, Setting, Sweep, change_of
from reweigh.lab.paper.material import Material, register

RULES = ("stable", "count-5", "count-10")


class Rules(Sweep):
    """CHAIR and the number of registered tokens under each rule."""

    name = "rules"
    title = "Registration rules"
    labels = ("tab:registration-rules",)

    def settings(self, material: Material) -> Iterator[Setting]:
        for rule in RULES:
            if rule == material.rule:
                yield Setting(rule, material.rank(), {"registered": len(material.table)}, DEPLOYED)
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
        ]
