"""What each patch of a scene shows: the dense labels of the auxiliary training losses.

Labels are used in training alone; calibration and decoding never see them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from reweigh.world.drawings import CATALOGUE
from reweigh.world.kinds import KINDS
from reweigh.world.render import placed_sprite
from reweigh.world.scenes import SIZE, Scene

PATCHES = 8
"""Patches a side of the embedded model's vision tower."""

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


def owners(scene: Scene, size: int, patches: int = PATCHES) -> np.ndarray[Any, Any]:
    """For each patch, row by row, the share of its pixels that each instance shows: (instances, patches, patches)."""
    front = np.full((size, size), -1, dtype=np.int8)
    for number, instance in enumerate(scene.instances):
        picture, (left, top) = placed_sprite(instance, size)
        alpha = np.asarray(picture.getchannel("A")) > 127
        x0, y0, x1, y1 = (
            max(left, 0),
            max(top, 0),
            min(left + alpha.shape[1], size),
            min(top + alpha.shape[0], size),
        )
        front[y0:y1, x0:x1][alpha[y0 - top : y1 - top, x0 - left : x1 - left]] = number
    step = size // patches
    cells = front.reshape(patches, step, patches, step)
    return np.stack([(cells == n).mean(axis=(1, 3), dtype=np.float32) for n in range(len(scene.instances))])
