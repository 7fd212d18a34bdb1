"""Values between MLX and PyTorch, exact in every float type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor, nn

FLOATS = {mx.float32: torch.float32, mx.float16: torch.float16, mx.bfloat16: torch.bfloat16}


def to_torch(array: mx.array) -> Tensor:
    """A copy on the CPU; waits for MLX to compute it."""
    wide = array.astype(mx.float32) if array.dtype == mx.bfloat16 else array  # NumPy has no bfloat16
    values = torch.from_numpy(np.array(wide))
    return values.to(FLOATS.get(array.dtype, values.dtype))


def to_mlx(tensor: Tensor, dtype: Any) -> mx.array:
    """A tensor in a float type of MLX."""
    return mx.array(tensor.float().numpy()).astype(dtype)


def inputs_to_torch(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A processor's outputs for a reader of positions; what MLX does not hold stays as it is."""
    return {name: to_torch(value) if isinstance(value, mx.array) else value for name, value in inputs.items()}


class Through(nn.Module):
    """A module of an mlx-vlm model as a module of PyTorch, for the lens.

    Args:
        run: The MLX module or function.
        dtype: Float type in which the model computes.
        rows: Rows of a head.
        width: Width of the states.
    """

    def __init__(self, run: Any, dtype: Any, rows: int, width: int) -> None:
        super().__init__()
        self.run, self.dtype = run, dtype
        self.out_features, self.in_features = rows, width

    def forward(self, states: Tensor) -> Tensor:
        """What MLX computes of the states."""
        return to_torch(self.run(to_mlx(states, self.dtype)))
