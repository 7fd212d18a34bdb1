"""A substitute's sentence says both parts of the paper's finding: worse, and less than half of the change."""

from __future__ import annotations

import pytest

from reweigh.paper.studies.specificity import _verdict


@pytest.mark.parametrize(
    ("low", "share", "said"),
    [
        (1.0, 0.3, ", as the paper finds."),
        (1.0, 0.7, "recovers more than half"),
        (-1.0, 0.3, "does not show here"),
        (None, None, "does not show here"),
    ],
)
def test_a_substitute_is_held_against_both_parts(low, share, said):
    assert said in _verdict({"low": low, "high": 2.0, "value": 1.0}, share)
