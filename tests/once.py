"""Expensive folders that the workers of one test run share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder ``name``, which the first worker to ask for it fills by ``make(folder)``. Never write into it."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # a worker's own folder is below the one of the run
    folder, finished = root / "once" / name, root / "once" / f"{name}.finished"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not finished.exists():
            make(folder)
            finished.touch()
    return folder
