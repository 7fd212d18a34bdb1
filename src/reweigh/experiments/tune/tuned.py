"""What a search leaves: the choice, the scored run of every point, and how each differs from the base, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from reweigh.benchmarks.bootstrap import Array, Figures, differences, paired
from reweigh.estimate import Estimate
from reweigh.experiments.tune.labelfree.verified import Verified
from reweigh.experiments.tune.search import BASE, FIGURES, Found, Key, relative_gain
from reweigh.runs.task import Scored

GAIN = "gain"
"""Key of the gain in percent among a point's differences to the base."""


@dataclass(frozen=True)
class Tuned:
    """A finished search.

    Attributes:
        found: The points and the choice.
        scored: The run of every point, and of the base.
        formula: From counts to figures.
        verified: Whose answers stood for labels; ``None`` where there were labels.
    """

    found: Found
    scored: Mapping[Key, Scored]
    formula: Figures
    verified: Verified | None = None

    @cached_property
    def differences(self) -> dict[Key, dict[str, Estimate]]:
        """Each point's figures minus the base's and its gain in percent, the same images drawn for both."""
        base = self.scored[BASE].items
        return {
            key: paired(base, run.items, self.formula, hold_against)
            for key, run in self.scored.items()
            if key != BASE
        }


def hold_against(old: Mapping[str, Array], new: Mapping[str, Array]) -> dict[str, Array]:
    """The differences of the judged figures, and the gain in percent."""
    found = {name: value for name, value in differences(old, new).items() if name in FIGURES}
    return {**found, GAIN: 100 * relative_gain(new, old)}
