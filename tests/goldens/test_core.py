"""Every decoder, evidence and table gives what it gave when it was frozen."""

from __future__ import annotations

import pytest

from goldens.cases import CORE
from goldens.values import FROZEN, assert_frozen

pytestmark = pytest.mark.numerics
FLIPS = {"decoders": 1e-4, "evidence": 1e-3, "calibration": 1e-3, "check": 1e-3, "reweigh": 0.02}
"""Other machines round differently. That moves a logit a little, and now and then a rank, which shows more."""


@pytest.mark.parametrize("name", CORE)
def test_core_is_as_frozen(name: str) -> None:
    assert_frozen(name, CORE[name](), flips=FLIPS[name.split("/")[1]])


def test_every_frozen_core_file_has_a_case() -> None:
    files = {
        file.relative_to(FROZEN).with_suffix("").as_posix() for file in (FROZEN / "core").rglob("*.json")
    }
    assert files == set(CORE)
