"""The lens (Eq. lens): z_j = W_head(Norm(h_j)). Many positions are read in chunks, to bound the memory.

Norm and head are the model's own modules, called as the model calls them. What the model does to its logits
afterwards (soft-capping, a positive scale) is monotone and never changes a rank, so it is left out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from reweigh.errors import InputError, UnsupportedError

CHUNK = 288
"""Positions read at once: large enough for the matrix product, small enough that P x V never exists."""

VOCAB_BLOCK = 16384

DTYPES = ("native", "float32")


class Lens:
    """Reads residual states through the final norm and the head of one model.

    Args:
        norm: The final norm.
        head: The output embedding.
        dtype: "native" gives what the head computes in the model's own type; "float32" upcasts norm output and
            head first. It is part of the definition of the evidence and is recorded in a table.
        chunk: Positions per matrix product; recorded too, because it can change the product's rounding.
        rows: How many of the head's first rows take part in ranks; all if not given.
    """

    def __init__(
        self,
        norm: nn.Module,
        head: nn.Module,
        *,
        dtype: str = "native",
        chunk: int = CHUNK,
        rows: int | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise InputError(f"lens dtype {dtype!r} is unknown", hint=f"one of {', '.join(DTYPES)}")
        if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
            raise InputError(f"chunk cannot be {chunk!r}", hint="give a whole number, 1 or more")
        self.norm = norm
        self.head = head
        self.chunk = chunk
        self.upcast = dtype == "float32"
        self.vocab_size = head_rows(head)
        self.rows = self.vocab_size if rows is None else rows
        self.width = head_width(head)

    @property
    def mode(self) -> str:
        """How logits are computed: "native" or "float32"."""
        return "float32" if self.upcast else "native"

    @property
    def dtype(self) -> str:
        """The type that the logits have, e.g. "bfloat16"."""
        if self.upcast:
            return "float32"
        device = next(self.norm.parameters(), torch.empty(0)).device
        return str(head_dtype(self.head, self.width, device)).removeprefix("torch.")

    def read(self, states: Tensor, *, norm: bool = True) -> Tensor:
        """Return the logits (P, V) of residual states (P, d); ``norm=False`` for states that are normed already."""
        device = next(self.norm.parameters(), states).device
        if device.type != "meta":  # an offloaded module brings states to its weights itself
            states = states.to(device)
        try:
            normed: Tensor = self.norm(states) if norm else states
            return _float32_product(self.head, normed) if self.upcast else self.head(normed)
        except RuntimeError as error:
            own = {weight.dtype for part in (self.norm, self.head) for weight in part.parameters()}
            if states.dtype in own or isinstance(error, torch.OutOfMemoryError):
                raise
            raise InputError(
                f"states of {states.dtype} cannot be read by a norm and head of {', '.join(map(str, own))} ({error})",
                hint="pass the states as the model returned them",
            ) from error

    def ranked(self, states: Tensor) -> Tensor:
        """Return the logits (P, rows) that take part in ranks."""
        return self.read(states)[:, : self.rows]


def _float32_product(head: nn.Module, states: Tensor) -> Tensor:
    """Apply the head in float32 without a float32 copy of its whole weight."""
    weight = float_weight(head)
    if weight is None or weight.device.type == "meta":
        raise UnsupportedError(
            f"{type(head).__name__} has no floating-point weight to upcast", hint='use dtype="native"'
        )
    if weight.dtype == torch.float32 and states.dtype == torch.float32:
        return head(states)  # type: ignore[no-any-return]
    bias = getattr(head, "bias", None)
    logits = states.new_empty(states.shape[0], weight.shape[0], dtype=torch.float32)
    inputs = states.float()
    for start in range(0, weight.shape[0], VOCAB_BLOCK):
        rows = slice(start, start + VOCAB_BLOCK)
        logits[:, rows] = inputs @ weight[rows].float().T
        if bias is not None:
            logits[:, rows] += bias[rows].float()
    return logits


def lens_disagreement(lens_logits: Tensor, model_logits: Tensor, *, top: int = 50) -> float:
    """Measure how far the last block's lens is from ordering the model's best tokens as the model does.

    Both are (P, V). The model's ``top`` tokens, best first, must have non-increasing lens logits; the result is the
    largest rise as a share of the lens logits' range, 0 for exact agreement up to a monotone map.
    """
    top = min(top, model_logits.shape[-1])
    order = model_logits.float().topk(top, dim=-1).indices
    along = lens_logits.float().gather(-1, order)
    rises = (along - along.cummin(dim=-1).values).amax(dim=-1)
    beyond = lens_logits.float().amax(dim=-1) - along[:, 0]
    spread = lens_logits.float().amax(dim=-1) - lens_logits.float().amin(dim=-1)
    return float((torch.maximum(rises, beyond) / spread.clamp_min(1e-30)).max())


def float_weight(head: Any) -> Tensor | None:
    """Return the head's weight if it is a floating-point tensor; a quantized head packs its own."""
    weight = getattr(head, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.is_floating_point() else None


def head_rows(head: Any) -> int:
    """Return the rows of a head, those beyond the tokenizer included."""
    weight = float_weight(head)
    return int(head.out_features if weight is None else weight.shape[0])


def head_width(head: Any) -> int:
    """Return the width of the states that a head reads."""
    weight = float_weight(head)
    return int(head.in_features if weight is None else weight.shape[1])


def head_dtype(head: Any, width: int, device: torch.device | str) -> torch.dtype:
    """Return the dtype of ``head``'s output for states (P, ``width``) on ``device``, under autocast if it is on.

    A plain linear layer outside autocast gives its weight's type; any other is run on one state of zeros, without its
    hooks. The state has the type of a floating-point weight, else float32. A weight on the meta device is an offloaded
    one, which is brought to the states when its layer runs.
    """
    device = torch.device(device)
    weight = float_weight(head)
    kinds = ("cpu", "cuda") if device.type == "meta" else (device.type,)
    if type(head) is nn.Linear and weight is not None and not any(map(torch.is_autocast_enabled, kinds)):
        return weight.dtype
    states = torch.float32 if weight is None else weight.dtype
    with torch.no_grad():
        zeros = torch.zeros(1, width, dtype=states, device="cpu" if device.type == "meta" else device)
        logits: Tensor = head.forward(zeros)
    return logits.dtype
