"""What each patch of a scene shows: the dense labels of the auxiliary training losses.

Labels are used in training alone; calibration and decoding never see them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from reweigh.world.drawings import CATALOGUE
from reweigh.world.kinds import KINDS
from reweigh.world.render import PATCHES, owners
from reweigh.world.scenes import SIZE, Scene

NAMES: tuple[str, ...] = (*CATALOGUE, *KINDS)
"""Classes of a patch: the objects, then the scene types for patches that show only backdrop."""

VISIBLE = 0.20
"""Share of a patch's pixels that its objects must fill for it to count as theirs."""


@cache
def number(name: str) -> int:
    """Class of an object or a scene type."""
    return NAMES.index(name)


def patch_labels(scene: Scene) -> np.ndarray[Any, Any]:
    """Class of each patch, row by row (64 numbers)."""
    shares = owners(scene, SIZE).reshape(len(scene.instances), PATCHES * PATCHES)
    classes = np.array([number(instance.name) for instance in scene.instances])
    best = classes[shares.argmax(axis=0)]
    return np.where(shares.sum(axis=0) >= VISIBLE, best, number(scene.kind)).astype(np.int64)
