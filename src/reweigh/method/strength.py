"""Suppression strength (Eqs. normalized-edit, suppression-strength): how far evidence falls below its reference.

The only implementation: registration uses it to measure how much an edit would vary, intervention to edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

Values = TypeVar("Values", "NDArray[np.float64]", "Tensor")


def strength(
    reference: Any, evidence: Values, scale: float, *, low: float | None = 0.0, high: float | None = 1.0
) -> Values:
    """e(b, x) = clip((b - x) / b0, low, high), for tensors and NumPy arrays; an ablation drops one of the clips.

    Example:
        >>> import numpy as np
        >>> strength(np.array([0.5, 0.5, 0.5]), np.array([0.75, 0.375, 0.125]), scale=0.25).tolist()
        [0.0, 0.5, 1.0]
    """
    share: Any = (reference - evidence) / scale
    return cast(Values, share.clip(low, high))


def deficit(reference: Tensor, evidence: Tensor) -> Tensor:
    """How far the evidence falls short of the reference: max(b - DMRR, 0)."""
    return (reference - evidence).clamp_min(0.0)
