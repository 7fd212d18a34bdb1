"""Exact ranks of tokens among the whole vocabulary, and the sums of their reciprocals over image positions.

rank_j(v) = 1 + #{u : z_j(u) > z_j(v)}: equal logits share the best rank, -0 equals +0, NaN is refused. Knows
logits only: not where they come from, nor what the evidence is used for.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from reweigh.errors import InputError, MismatchError, NumericsError
from reweigh.method.kernels import LOGIT_DTYPES, choose_kernel, kernel_names
from reweigh.method.kernels.base import MOST_POSITIONS, ONE, refuse_nan

__all__ = ["RankSum", "choose_kernel", "kernel_names", "reciprocal_ranks"]

FEW_TOKENS = 32
COMPARED_AT_ONCE = 1 << 24


class RankSum:
    """Sum of reciprocal ranks over the positions of one image and one layer.

    Terms are integers of 2**-40 (see ``kernels.base``), so the sum is the same bit for bit for any order of
    rows, chunks, threads and merges, and any strictly increasing map of a row leaves it unchanged.

    Args:
        vocab_size: Width V of the logits.
        tokens: Registered token ids (R,): only their sums are kept; ranks run over the whole vocabulary.
        kernel: A name of ``kernel_names()``.

    Example:
        >>> ranks = RankSum(vocab_size=3)
        >>> ranks.add(torch.tensor([[2.0, 1.0, 1.0], [0.0, 5.0, 1.0]]))  # ranks 1 2 2, then 3 1 2
        >>> [round(value, 3) for value in ranks.dmrr().tolist()]
        [0.667, 0.75, 0.5]
    """

    def __init__(self, vocab_size: int, tokens: Tensor | None = None, kernel: str = "auto") -> None:
        if vocab_size < 1:
            raise InputError(f"vocab_size is {vocab_size}; it must be at least 1")
        self.vocab_size = vocab_size
        self.tokens = None if tokens is None else checked_tokens(tokens, vocab_size)
        self.kernel = kernel
        self.count = 0
        self._broken: Tensor | None = None
        self._units = torch.zeros(
            vocab_size if self.tokens is None else self.tokens.numel(), dtype=torch.int64
        )

    def add(self, logits: Tensor) -> None:
        """Add positions: ``logits`` (P, V) in the head's own dtype, on any device."""
        if logits.ndim != 2 or logits.shape[1] != self.vocab_size:
            raise InputError(
                f"logits have shape {tuple(logits.shape)}; (positions, {self.vocab_size}) was expected"
            )
        if logits.device.type == "mps":  # it has no float64
            logits = logits.cpu()
        registered = None if self.tokens is None else self.tokens.numel()
        kernel = choose_kernel(self.kernel, logits.device, logits.dtype)
        if self.count + logits.shape[0] > MOST_POSITIONS:
            raise InputError(f"more than {MOST_POSITIONS} positions do not fit one sum")
        if not logits.is_cpu:  # to look now would wait for the device: ``sums`` looks once for all chunks
            broken = torch.isnan(logits).any()
            self._broken = broken if self._broken is None else self._broken.to(logits.device) | broken
        elif registered == 0 and torch.isnan(logits).any():  # nothing to rank, but broken logits all the same
            raise refuse_nan(logits)
        if logits.shape[0] == 0 or registered == 0:
            self.count += logits.shape[0]
            return
        self._units = self._units.to(logits.device)
        if self.tokens is not None:
            self.tokens = self.tokens.to(logits.device)
        added = torch.zeros_like(self._units)
        kernel.add(logits.detach().contiguous(), self.tokens, added)
        self._units += added
        self.count += logits.shape[0]

    def merge(self, other: RankSum) -> None:
        """Add the positions of another sum over the same vocabulary and tokens."""
        same = self.vocab_size == other.vocab_size and (self.tokens is None) == (other.tokens is None)
        if same and self.tokens is not None and other.tokens is not None:
            same = len(self.tokens) == len(other.tokens)
            if (
                same and self.tokens.is_cpu and other.tokens.is_cpu
            ):  # to compare elsewhere waits for the device
                same = torch.equal(self.tokens, other.tokens)
        if not same:
            raise MismatchError(
                "two rank sums of different vocabularies or registered tokens cannot be merged"
            )
        self._units = self._units + other._units.to(self._units.device)
        self.count += other.count
        if other._broken is not None:
            mine = other._broken if self._broken is None else self._broken
            self._broken = mine | other._broken.to(mine.device)

    @property
    def sums(self) -> Tensor:
        """Sums of 1/rank, float64; exact up to 8,192 positions, correctly rounded beyond.

        Raises:
            NumericsError: Some logits on an accelerator were NaN; the first call waits for the device to tell.
        """
        if self._broken is not None and bool(self._broken):
            raise NumericsError(
                f"some logits of these {self.count} positions are NaN",
                hint="a NaN has no rank; check the weights, or measure in float32 if float16 overflows",
            )
        self._broken = None
        return self._units.double() / ONE

    def dmrr(self) -> Tensor:
        """Dense mean reciprocal rank, float32 (V,), or (R,) in the order of the registered tokens."""
        if self.count == 0:
            raise NumericsError(
                "no position was measured, so there is no mean", hint="the prompt holds no image"
            )
        return (self.sums / self.count).float()


def reciprocal_ranks(logits: Tensor, tokens: Tensor) -> Tensor:
    """1/rank of ``tokens`` (n,) at every position of ``logits`` (P, V): float32 (P, n), correctly rounded.

    NaN is refused on the CPU; on an accelerator the rank sum of the same logits refuses it.
    """
    if logits.ndim != 2 or logits.dtype not in LOGIT_DTYPES:
        raise InputError(
            f"logits are {logits.dtype} of shape {tuple(logits.shape)}; (P, V) floats were expected"
        )
    vocab = logits.shape[1]
    tokens = checked_tokens(tokens, vocab).to(logits.device)
    if logits.is_cpu and torch.isnan(logits).any():
        raise refuse_nan(logits)
    if tokens.numel() == 0 or logits.shape[0] == 0:
        return torch.zeros(logits.shape[0], tokens.numel(), device=logits.device)
    parts = []
    for rows in torch.split(logits, max(1, COMPARED_AT_ONCE // vocab)):
        if tokens.numel() <= FEW_TOKENS:
            scores = rows[:, tokens]
            larger = torch.stack([(rows > own[:, None]).sum(dim=1) for own in scores.unbind(dim=1)], dim=1)
        else:
            ascending = torch.sort(rows.float(), dim=1).values
            larger = vocab - torch.searchsorted(ascending, rows[:, tokens].float(), right=True)
        parts.append(1.0 / (larger + 1).float())
    return torch.cat(parts)


def checked_tokens(tokens: Tensor | Sequence[int], vocab_size: int) -> Tensor:
    """Token ids as a flat int64 tensor, each inside the vocabulary; ids on an accelerator are checked by indexing."""
    try:
        ids = torch.as_tensor(tokens).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"token ids must be integers, not {tokens!r}") from error
    if not ids.numel() and ids.ndim == 1:
        return ids.long()
    if ids.ndim != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InputError(f"token ids must be a flat integer tensor, not {ids.dtype} of {tuple(ids.shape)}")
    ids = ids.long()
    if ids.is_cpu and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        raise InputError(
            f"token ids run from {int(ids.min())} to {int(ids.max())}, beyond 0..{vocab_size - 1}",
            hint="the ids belong to another tokenizer or head",
        )
    return ids
