"""How well a score tells hallucinated from grounded mentions: the area under the ROC curve, with image weights.

AUROC is the chance that a hallucinated mention scores higher than a grounded one, ties counting half.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def auroc(score: NDArray[Any], positive: NDArray[Any], weight: NDArray[Any] | None = None) -> Floats:
    """AUROC of mentions (n,) for each row of weights (..., n); NaN where one kind has no weight.

    Example:
        >>> float(auroc(np.array([0.1, 0.4, 0.4]), np.array([False, False, True])))
        0.75
    """
    order = np.argsort(score, kind="stable")
    ordered, kind = np.asarray(score, float)[order], np.asarray(positive, bool)[order]
    weights = np.ones(len(ordered)) if weight is None else np.asarray(weight, float)[..., order]
    group = np.cumsum(np.r_[False, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, int)
    starts = np.flatnonzero(np.r_[True, np.diff(group) > 0]) if len(ordered) else np.zeros(0, int)
    if not len(starts):
        return np.full(weights.shape[:-1], np.nan)
    high = np.add.reduceat(weights * kind, starts, axis=-1)
    low = np.add.reduceat(weights * ~kind, starts, axis=-1)
    below = np.cumsum(low, axis=-1) - low
    won = (high * (below + 0.5 * low)).sum(axis=-1)
    pairs = high.sum(axis=-1) * low.sum(axis=-1)
    result = np.full(np.shape(pairs), np.nan)
    np.divide(won, pairs, out=result, where=pairs > 0)
    return result
