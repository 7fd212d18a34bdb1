"""Registration rules: the reference-stability rule against a minimum number of observations, from the same observations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reweigh.method.references import rule_named
from reweigh.paper.analyses.words import show
from reweigh.paper.studies.endtoend import EndToEnd
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import Row, find
from reweigh.paper.studies.sweep import AGAINST, Setting, Sweep
from reweigh.tables.table import ReferenceTable

RULES = ("stable", "count-5", "count-10")


class Rules(Sweep):
    """CHAIR and the number of registered tokens under each rule."""

    name = "rules"
    title = "Registration rules"
    reproduces = "Tab. registration-rules"

    def settings(self, material: Material, runs: EndToEnd) -> Iterator[Setting]:
        observations, deployed = material.panel(), material.table
        for rule in RULES:
            if rule == material.rule:
                yield Setting(rule, runs.rank(), {"registered": len(deployed)}, "the table in use")
                continue
            found = observations.register(deployed.layer, rule=rule_named(rule))
            table = ReferenceTable.build(deployed.layer, found, {**deployed.made_with, "rule": rule})
            yield Setting(rule, runs.run(f"rule-{rule}", table), {"registered": len(table)})

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        lines = []
        for rule in RULES:
            size = find(rows, setting=rule, quantity="registered")["value"]
            change = show(find(rows, setting=rule, quantity="chair_s" + AGAINST), signed=True, unit=" points")
            lines.append(f"{rule} registers {size:,.0f} tokens and changes CHAIR_S by {change}")
        values = [find(rows, setting=rule, quantity="chair_s")["value"] for rule in RULES]
        apart = max(values) - min(values)
        return [
            "; ".join(lines) + ".",
            f"The rules stay within {apart:.1f} points of CHAIR_S of each other; in the paper within 1.2.",
        ]
