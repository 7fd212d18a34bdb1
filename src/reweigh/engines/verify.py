"""What a decoder's ``edit`` returns, checked where an engine takes it: a broken decoder never passes for a good one."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError


def verify_edit(decoder: Any, raw: Tensor, edited: Any) -> None:
    """Refuse logits that cannot stand in for a pass's own (B, K, V), naming the line where ``edit`` is written.

    Reads values, so it waits for the device: engines call it once for each shape.
    """
    wrong = _wrong_tensor(raw, edited) or _wrong_values(raw, edited)
    if wrong:
        raise InputError(
            f"edit of decoder {decoder.name or type(decoder).__name__!r} ({_where(decoder)}) returned {wrong}",
            hint="return None to leave a pass alone, or logits of its shape: forward.with_last(edited) puts (B, n, V) into "
            "the last n columns. At least one logit of each row must be finite, and none NaN or plus infinity",
        )


def _wrong_tensor(raw: Tensor, edited: Any) -> str | None:
    if not isinstance(edited, Tensor):
        return f"a {type(edited).__name__}, not a tensor"
    if edited.shape != raw.shape:
        return f"logits of shape {tuple(edited.shape)} for a pass of shape {tuple(raw.shape)}"
    if not edited.is_floating_point():
        return f"logits of type {edited.dtype}, not floating-point numbers"
    if edited.device != raw.device:
        return f"logits on {edited.device} for a pass on {raw.device}"
    return None


def _wrong_values(raw: Tensor, edited: Tensor) -> str | None:
    """Describe the first row that is no distribution, although the model's own is one."""
    best = edited.amax(dim=-1)  # NaN if any logit is
    broken = ~torch.isfinite(best) & torch.isfinite(raw.amax(dim=-1))
    if not broken.any():
        return None
    row, column = broken.nonzero()[0].tolist()
    value = float(best[row, column])
    what = "NaN" if value != value else "plus infinity" if value > 0 else "minus infinity for every token"
    return f"{what} in row {row} of logits of shape {tuple(edited.shape)}"


def _where(decoder: Any) -> str:
    """Return the file and line of a decoder's ``edit``."""
    code = getattr(inspect.unwrap(decoder.edit), "__code__", None)
    return (
        type(decoder).__module__
        if code is None
        else f"{Path(code.co_filename).name}, line {code.co_firstlineno}"
    )
