"""Whose candidates get the large edits: magnitudes of one field given to candidates in the order of another.

A field is what a calibrated readout would do to the candidates of one step. Its order is by magnitude, descending; many
magnitudes tie at 0 or 1, and then the larger unclipped deficit goes first, the unregistered last, then the lower id.
Donor: the field whose magnitudes are used. Assignment: the field whose order is used. A field that is its own donor and
assignment is itself again, whatever the ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepField:
    """Edits of the candidates of one step.

    Attributes:
        deficit: (C,) (b(v) - x) / b0, not clipped; NaN where the token is not registered.
        strength: (C,) the same clipped to [0, 1]; 0 where not registered.
    """

    deficit: Floats
    strength: Floats

    @classmethod
    def of(cls, evidence: NDArray[Any], references: NDArray[Any], scale: float) -> StepField:
        """The field of some candidates; a reference is NaN where the token is not registered."""
        deficit = (np.asarray(references, float) - np.asarray(evidence, float)) / scale
        return cls(deficit, np.nan_to_num(np.clip(deficit, 0.0, 1.0), nan=0.0))

    def order(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Places of the candidates, the strongest edit first."""
        known = np.where(np.isnan(self.deficit), -np.inf, self.deficit)
        return np.lexsort((ids, -known, -self.strength)).astype(np.int64)


def allocate(donor: StepField, assignment: StepField, ids: NDArray[Any]) -> Floats:
    """The donor's magnitudes, descending, given to the candidates in the assignment's order."""
    edit = np.empty(len(ids))
    edit[assignment.order(ids)] = np.sort(donor.strength)[::-1]
    return edit
