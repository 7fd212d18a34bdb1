"""The core computes what it computed before the redesign, bit for bit; see ``cases``.

Needs frozen outputs, made once by the package of then: ``REWEIGH_GUARD=FOLDER PYTHONPATH=OLD/src:tests:tests/guard python
tests/guard/cases.py FOLDER/frozen``. Without them it is skipped. It goes when the redesign ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))
HOME = Path(os.environ.get("REWEIGH_GUARD", "/nonexistent"))
pytestmark = pytest.mark.skipif(
    not (HOME / "frozen").is_dir(), reason="REWEIGH_GUARD names no frozen outputs"
)


def sections() -> list[str]:
    from cases import SECTIONS

    return list(SECTIONS)


@pytest.mark.parametrize("name", sections())
def test_nothing_changed(name: str) -> None:
    from cases import run

    then, now = load_file(HOME / "frozen" / f"{name}.safetensors"), run(name)
    assert now.keys() == then.keys()
    differing = [
        key
        for key in then
        if then[key].shape != now[key].shape
        or not torch.equal(then[key].nan_to_num(7e7), now[key].nan_to_num(7e7))
    ]
    assert not differing
