"""Steering vectors of random numbers, for any shape of model."""

from __future__ import annotations

import numpy as np

from reweigh.rivals.tools.vectors import SteeringVectors


def random_vectors(blocks, width, *, rank=4, pairs=9, size=1.0, made_with=None):
    draw = np.random.default_rng(4)
    vectors, direction = (draw.normal(size=(blocks, width)).astype(np.float32) * size for _ in range(2))
    subspace = np.stack([np.linalg.qr(draw.normal(size=(width, rank)))[0].T for _ in range(blocks)])
    return SteeringVectors(vectors, direction, subspace.astype(np.float32), 9, 9, pairs, made_with or {})
