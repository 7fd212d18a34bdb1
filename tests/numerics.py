"""Other machines' rounding, on this one: finds tests that expect equal bits where only close values are promised.

How a matrix product rounds depends on the kernel that computes it, and the kernel depends on the instruction set, the number
of threads, the number of rows and the address of the weights. A weight mapped from a safetensors file starts wherever the
file's header ends, for instance 40 bytes past a multiple of 64; torch's own buffers (``copy.deepcopy``, ``Module.to``) start
at a multiple. Two options of pytest act on every test of a run:

- ``--weight-offset BYTES`` moves the weights of every model that is loaded.
- ``--round-by address,rows`` makes each linear layer round differently wherever a kernel somewhere might.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

LINE = 64
"""What torch aligns its own CPU buffers to, in bytes."""
CAUSES = ("address", "rows")
product = nn.functional.linear


def offset(tensor: torch.Tensor) -> int:
    """Bytes from the last multiple of ``LINE`` to the first element."""
    return tensor.data_ptr() % LINE


def moved(tensor: torch.Tensor, to: int) -> torch.Tensor:
    """A contiguous copy that starts ``to`` bytes past a multiple of ``LINE``."""
    width = tensor.element_size()
    if to % width:
        raise ValueError(f"{to} bytes are not a multiple of the {width} bytes of {tensor.dtype}")
    room = torch.empty(tensor.numel() + 2 * LINE // width, dtype=tensor.dtype)
    start = (to - offset(room)) % LINE // width
    return room[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)


def weights(model: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers on the CPU, each once."""
    held = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return [tensor for tensor in held.values() if tensor.device.type == "cpu" and tensor.numel()]


def move_weights(model: nn.Module, to: int) -> None:
    """Start every weight ``to`` bytes past a multiple of ``LINE``; tied weights stay tied."""
    for tensor in weights(model):
        tensor.data = moved(tensor.data, to)


def copied(model: nn.Module) -> Any:
    """A deep copy whose weights start at the offsets of the original's, so that both give the same bits."""
    made = copy.deepcopy(model)
    for mine, theirs in zip(weights(made), weights(model), strict=True):
        mine.data = moved(mine.data, offset(theirs))
    return made


def move_loaded_weights(to: int) -> None:
    """From now on, move the weights of every model that transformers loads in this process."""
    from transformers import PreTrainedModel

    load = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    @functools.wraps(load)
    def load_and_move(cls: Any, *args: Any, **options: Any) -> Any:
        found = load(cls, *args, **options)
        move_weights(found[0] if isinstance(found, tuple) else found, to)
        return found

    PreTrainedModel.from_pretrained = classmethod(load_and_move)  # type: ignore[method-assign]


@functools.cache
def errors(columns: int, dtype: torch.dtype, address: int, rows: int) -> torch.Tensor:
    """A factor for each column of a product: 1, or one step of ``dtype`` more or less."""
    random = torch.Generator().manual_seed(1009 * address + rows)
    steps = torch.randint(-1, 2, (columns,), generator=random)
    return (1 + steps * torch.finfo(dtype).eps).to(dtype)


def round_by(causes: Collection[str]) -> None:
    """From now on, make linear layers round by the address of their weight or by the number of their rows."""

    @functools.wraps(product)
    def linear(given: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        exact = product(given, weight, bias)
        if torch.compiler.is_compiling() or weight.device.type != "cpu":
            return exact
        address = offset(weight) if "address" in causes else 0
        rows = given.numel() // given.shape[-1] if "rows" in causes else 0
        return exact * errors(exact.shape[-1], exact.dtype, address, rows)

    nn.functional.linear = linear
