"""The readouts of an image's positions, added up chunk by chunk: one read of the states serves all that are asked.

rank_j(v) = 1 + #{u : z_j(u) > z_j(v)}: equal logits share the best rank, -0 equals +0, NaN is refused. Knows logits only:
not where they come from, nor what the evidence is used for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from reweigh.errors import InputError, MismatchError, NumericsError, require_known
from reweigh.method.kernels import choose_kernel
from reweigh.method.kernels.base import LOGIT_DTYPES, MOST_POSITIONS, ONE, add_in_threads, refuse_nan
from reweigh.method.readouts import DMRR, FLOOR, READOUTS

AT_ONCE = 1 << 22
"""Logits that are taken to float64 at once; a readout holds a few such copies."""


class Positions:
    """Logits (P, V) of some positions, with values that several readouts need, computed once."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits.cpu() if logits.device.type == "mps" else logits  # it has no float64

    @cached_property
    def double(self) -> Tensor:
        """The logits in float64; on an accelerator NaN is refused by the evidence that is made of them."""
        if self.logits.is_cpu and torch.isnan(self.logits).any():
            raise refuse_nan(self.logits)
        return self.logits.double()

    @cached_property
    def probability(self) -> Tensor:
        """Softmax over the vocabulary."""
        return torch.softmax(self.double, dim=1)

    @cached_property
    def log_probability(self) -> Tensor:
        """Its logarithm."""
        return torch.log_softmax(self.double, dim=1)

    @cached_property
    def scale(self) -> Tensor:
        """sigma_j, the standard deviation of each position's logits (P,)."""
        return self.double.std(dim=1, correction=0)


def blocks(logits: Tensor) -> Iterator[Positions]:
    """Split logits (P, V) into parts whose float64 copies stay small, whatever the vocabulary."""
    for part in torch.split(logits, max(1, AT_ONCE // logits.shape[1])):
        yield Positions(part)


def standardized(values: Tensor) -> Tensor:
    """Standardize each row: without its mean, in units of its standard deviation; zero if that is zero."""
    centered = values - values.mean(dim=1, keepdim=True)
    deviation = values.std(dim=1, correction=0, keepdim=True)
    return torch.where(deviation != 0, centered / deviation, torch.zeros_like(centered))


TERMS: dict[str, Callable[[Positions], Tensor]] = {
    "prob": lambda positions: positions.probability,
    "zscore": lambda positions: standardized(positions.double),
    "zprob": lambda positions: standardized(positions.probability),
}
"""What is summed for each term."""


class ReadoutSums:
    """What some readouts need of an image's positions, summed as chunks of them come.

    Reciprocal ranks are summed as integers of 2**-40 (see ``kernels.base``), so their sum is the same bit for bit for any
    order of rows, chunks, threads and merges, and any strictly increasing map of a row leaves it unchanged.

    Args:
        vocab_size: Width V of the logits.
        tokens: Keep these token ids only (R,); ranks and softmax still run over the whole vocabulary.
        kernel: Ranking kernel, a name of ``KERNELS``.
        readouts: Readouts that will be asked for.

    Examples:
        >>> sums = ReadoutSums(3, readouts=["dmrr", "prob"])
        >>> sums.add(torch.tensor([[2.0, 1.0, 1.0], [0.0, 5.0, 1.0]]))  # ranks 1 2 2, then 3 1 2
        >>> [round(value, 3) for value in sums.evidence().tolist()]
        [0.667, 0.75, 0.5]
    """

    def __init__(
        self,
        vocab_size: int,
        tokens: Tensor | Sequence[int] | None = None,
        kernel: str = "auto",
        readouts: Sequence[str] = (DMRR,),
    ) -> None:
        if vocab_size < 1:
            raise InputError(f"vocab_size is {vocab_size}; it must be at least 1")
        if isinstance(readouts, str) or not readouts:
            raise InputError(f"readouts are {readouts!r}; a list of names was expected", hint="e.g. ['dmrr']")
        require_known("readout", readouts, READOUTS)
        self.readouts = tuple(readouts)
        self.vocab_size = vocab_size
        self.tokens = None if tokens is None else checked_tokens(tokens, vocab_size)
        self.kernel = kernel
        self.count = 0
        width = vocab_size if self.tokens is None else self.tokens.numel()
        terms = dict.fromkeys(READOUTS[name].term for name in readouts if name != DMRR)
        self._units = torch.zeros(width, dtype=torch.int64)
        self._sums = {term: torch.zeros(width, dtype=torch.float64) for term in terms}
        self._broken: Tensor | None = None

    def add(self, logits: Tensor | Positions) -> None:
        """Add positions: logits (P, V) in the head's own dtype; ``Positions`` share what other sums have computed."""
        parts = [logits] if isinstance(logits, Positions) else blocks(logits) if self._sums else ()
        whole = logits.logits if isinstance(logits, Positions) else logits
        whole = whole.cpu() if whole.device.type == "mps" else whole  # it has no float64
        if whole.ndim != 2 or whole.shape[1] != self.vocab_size:
            raise InputError(
                f"logits have shape {tuple(whole.shape)}; (positions, {self.vocab_size}) was expected"
            )
        if self.count + whole.shape[0] > MOST_POSITIONS:
            raise InputError(f"more than {MOST_POSITIONS} positions do not fit one sum")
        if self.tokens is not None:
            self.tokens = self.tokens.to(whole.device)
        if DMRR in self.readouts:
            if (
                not whole.is_cpu
            ):  # checking now would wait for the device: ``ranks`` checks once for all chunks
                broken = torch.isnan(whole).any()
                self._broken = broken if self._broken is None else self._broken.to(whole.device) | broken
            added = torch.zeros_like(self._units, device=whole.device)
            add_in_threads(choose_kernel(self.kernel, whole.device, whole.dtype), whole, self.tokens, added)
            self._units = self._units.to(whole.device) + added
        for positions in parts:
            for term, total in self._sums.items():
                values = TERMS[term](positions)
                if self.tokens is not None:
                    values = values[:, self.tokens]
                self._sums[term] = total.to(values.device) + values.sum(dim=0)
        self.count += whole.shape[0]

    def merge(self, other: ReadoutSums) -> None:
        """Add the positions of another sum of the same readouts, vocabulary and tokens."""
        mine, its = self.tokens, other.tokens
        same = self.vocab_size == other.vocab_size and (mine is None) == (its is None)
        if same and mine is not None and its is not None:
            same = len(mine) == len(its)
            if same and mine.is_cpu and its.is_cpu:  # elsewhere, comparing waits for the device
                same = torch.equal(mine, its)
        if not same or self.readouts != other.readouts:
            raise MismatchError(
                f"sums of {self.readouts} and of {other.readouts}, or of different vocabularies or tokens, "
                "cannot be merged"
            )
        self._units = self._units + other._units.to(self._units.device)
        if other._broken is not None:
            seen = other._broken if self._broken is None else self._broken
            self._broken = seen | other._broken.to(seen.device)
        for term, total in self._sums.items():
            self._sums[term] = total + other._sums[term].to(total.device)
        self.count += other.count

    @property
    def ranks(self) -> Tensor:
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

    def evidence(self, name: str = DMRR) -> Tensor:
        """Return the evidence under one readout, float32 (V,), or (R,) in the order of the tokens."""
        if name not in self.readouts:
            require_known("readout of this measurement", [name], self.readouts)
        if self.count == 0:
            raise NumericsError(
                "no position was measured, so there is no mean", hint="the prompt contains no image"
            )
        if name == DMRR:
            return (self.ranks / self.count).float()
        readout = READOUTS[name]
        mean = self._sums[readout.term] / self.count
        values = (mean.clamp_min(FLOOR).log() if readout.is_log else mean).float()
        if not torch.isfinite(values).all():
            raise NumericsError(
                f"the {readout.title} of some tokens is not finite", hint="some logits are NaN or infinite"
            )
        return values


def reciprocal_ranks(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return 1/rank of ``tokens`` (n,) at every position of ``logits`` (P, V): float32 (P, n), correctly rounded.

    NaN is refused on the CPU; on an accelerator the rank sum of the same logits refuses it.
    """
    if logits.ndim != 2 or logits.dtype not in LOGIT_DTYPES:
        raise InputError(
            f"logits are {logits.dtype} of shape {tuple(logits.shape)}; (P, V) floats were expected"
        )
    tokens = checked_tokens(tokens, logits.shape[1]).to(logits.device)
    if logits.is_cpu and torch.isnan(logits).any():
        raise refuse_nan(logits)
    if tokens.numel() == 0 or logits.shape[0] == 0:
        return torch.zeros(logits.shape[0], tokens.numel(), device=logits.device)
    scores = logits[:, tokens].unbind(dim=1)
    larger = torch.stack([(logits > own[:, None]).sum(dim=1) for own in scores], dim=1)
    return 1.0 / (larger + 1).float()


def checked_tokens(tokens: Tensor | Sequence[int], vocab_size: int) -> Tensor:
    """Check token ids: flat integers inside the vocabulary; indexing checks those on an accelerator."""
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
