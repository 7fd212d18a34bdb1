"""Every command gives the values that it gave when it was frozen, and folders written then still open."""

from __future__ import annotations

import pytest

from goldens import commands
from goldens.commands import OUTER, SLOW
from goldens.values import FROZEN, assert_frozen


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in OUTER]
)
def test_a_command_says_what_was_frozen(name: str) -> None:
    assert_frozen(name, OUTER[name]())


def test_every_frozen_outer_file_has_a_case() -> None:
    files = {
        file.relative_to(FROZEN).with_suffix("").as_posix() for file in (FROZEN / "outer").rglob("*.json")
    }
    assert files == set(OUTER)


def test_calibrations_of_then_open() -> None:
    assert_frozen("outer/calibrate", commands.reopened_tables())
