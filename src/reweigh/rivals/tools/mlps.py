"""Edits of MLP outputs that treat each position by itself: turned towards a direction, or projected off a subspace.

VISTA, VTI and Nullu are these with different directions. A position depends on nothing beside it, so caches, beams
and drafts need no care. Rows without an image stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy


def turned(x: Tensor, direction: Tensor, strength: float, *, against: bool = False) -> Tensor:
    """States (..., d) turned towards a direction (..., d), their length kept: |x| unit(unit(x) + strength unit(v)).

    With ``against`` the strength grows by max(0, cos(x, -v)), so that states which point away are turned more.
    """
    push = strength * F.normalize(direction, dim=-1)
    if against:
        push = push * (1 + F.cosine_similarity(x, -direction, dim=-1).clamp_min(0)[..., None])
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return length * F.normalize(F.normalize(x, dim=-1) + push, dim=-1)


def projected_off(x: Tensor, basis: Tensor) -> Tensor:
    """States (..., d) without their part in the span of orthonormal rows (k, d): x - V^T V x."""
    return x - (x @ basis.T) @ basis


def where_rows(rows: Sequence[bool], edited: Tensor, out: Tensor) -> Tensor:
    """``edited`` (B, T, d) in the rows chosen, ``out`` in the others, in the type of ``out``."""
    chosen = torch.tensor(list(rows), device=out.device)[:, None, None]
    return torch.where(chosen, edited.to(out.dtype), out)


def require_plain_mlps(anatomy: Anatomy, method: str) -> None:
    """Refuse a family that norms an MLP's output: the length that the edit keeps would be lost."""
    if hasattr(anatomy.blocks[0], "post_feedforward_layernorm"):
        raise UnsupportedError(
            f"{type(anatomy.model).__name__} norms the output of its MLPs, so the length that {method} keeps is lost",
            hint="use another decoder on this family",
        )
