"""The share of candidates without a reference, counted by hand."""

from __future__ import annotations

from made_material import CAT, DOG, THE, image, material, table

from reweigh.lab.paper.analyses.rules import unregistered


def test_every_candidate_position_without_a_reference_counts() -> None:
    steps = [(THE, [(THE, 2.0), (DOG, 1.0)]), (DOG, [(DOG, 3.0), (CAT, 1.0), (THE, 0.5)])]
    made = material(
        lambda number: image(number, steps, [], {"dmrr": [0.0] * 8}),
        rank=table({DOG: 0.1, CAT: 0.2}),
        images=3,
    )
    assert unregistered(made).value == 40.0  # "the" at both steps: two of five positions
