"""Prefill and step as an accelerator runs them: a Python-only device on which every read of a value is counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REHEARSAL = Path(__file__).with_name("rehearsal.py")


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_a_step_waits_for_nothing_and_an_image_for_one_value(device):
    """In a process of its own: a backend cannot be taken back."""
    run = subprocess.run(
        [sys.executable, str(REHEARSAL), device], capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == ["step", "0", "image", {"meta": "0", "fake": "1"}[device]]
