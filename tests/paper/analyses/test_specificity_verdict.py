"""A substitute's sentence says both parts of the paper's finding: worse, and less than half of the change."""

from __future__ import annotations

import pytest

from reweigh.estimate import Estimate
from reweigh.paper.analyses.specificity import verdict


@pytest.mark.parametrize(
    ("low", "share", "said"),
    [
        (1.0, 0.3, "As in the paper, this is worse."),
        (1.0, 0.7, "more than half"),
        (-1.0, 0.3, "not confirmed"),
        (None, None, "not confirmed"),
    ],
)
def test_a_substitute_is_held_against_both_parts(low, share, said):
    assert said in verdict(Estimate(1.0, low, 2.0), share)
