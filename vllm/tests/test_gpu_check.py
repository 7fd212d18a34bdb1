"""How the check for GPUs judges two programs' tokens."""

from __future__ import annotations

import pytest

from gpu_check import agreement, verdict, ways


def test_tokens_agree_until_texts_part():
    assert agreement([[1, 2, 3]], [[1, 2, 3]]) == 1.0
    assert agreement([[1, 2, 3, 4]], [[1, 9, 3, 4]]) == 0.25
    assert agreement([[1, 2]], [[1, 2, 3, 4]]) == 0.5
    assert agreement([[1, 2], [5, 6]], [[1, 2], [6, 6]]) == 0.5
    assert agreement([], []) == 1.0


@pytest.mark.parametrize(
    ("dtype", "base", "edited", "said"),
    [
        ("float32", 1.0, 1.0, "ok"),
        ("float32", 1.0, 0.99, "DIFFERS"),
        ("float32", 0.99, 1.0, "DIFFERS"),
        ("bfloat16", 0.6, 0.55, "ok"),
        ("bfloat16", 0.6, 0.4, "DIFFERS"),
    ],
)
def test_sixteen_bit_edits_must_agree_as_well_as_the_base_does(dtype, base, edited, said):
    assert verdict(dtype, base, edited) == said


def test_two_workers_need_two_devices():
    assert "two tensor-parallel workers" in ways(2, small=False)
    assert "two tensor-parallel workers" not in ways(1, small=False)
    assert list(ways(0, small=True)) == ["eager", "compiled"]
