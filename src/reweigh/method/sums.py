"""The readouts of an image's positions, added up chunk by chunk: one read of the states serves all that are asked.

Knows logits only: not where they come from, nor what the evidence is used for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from reweigh.errors import InputError, MismatchError, NumericsError, require_known
from reweigh.method.kernels.base import refuse_nan
from reweigh.method.ranks import RankSum, checked_tokens
from reweigh.method.readouts import DMRR, FLOOR, READOUTS

AT_ONCE = 1 << 22
"""Logits that are taken to float64 at once; a readout holds a few such copies."""


class Positions:
    """Logits (P, V) of some positions, and what several readouts need of them, computed once."""

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
    """Logits (P, V) in parts whose float64 copies stay small, whatever the vocabulary."""
    for part in torch.split(logits, max(1, AT_ONCE // logits.shape[1])):
        yield Positions(part)


def standardized(values: Tensor) -> Tensor:
    """Each row without its mean, in units of its standard deviation; zero where there is none."""
    centred = values - values.mean(dim=1, keepdim=True)
    deviation = values.std(dim=1, correction=0, keepdim=True)
    return torch.where(deviation != 0, centred / deviation, torch.zeros_like(centred))


TERMS: dict[str, Callable[[Positions], Tensor]] = {
    "prob": lambda positions: positions.probability,
    "zscore": lambda positions: standardized(positions.double),
    "zprob": lambda positions: standardized(positions.probability),
}
"""What is summed for each term."""


class ReadoutSums:
    """What some readouts need of an image's positions, summed as chunks of them come.

    Args:
        names: Readouts that will be asked for.
        vocab_size: Width V of the logits.
        tokens: Keep these token ids only; ranks and softmax still run over the whole vocabulary.
        kernel: Ranking kernel.

    Example:
        >>> sums = ReadoutSums(["dmrr", "prob"], vocab_size=2)
        >>> sums.add(torch.tensor([[0.0, 0.0], [9.0, -9.0]]))
        >>> sums.evidence("dmrr").tolist(), [round(p, 3) for p in sums.evidence("prob").tolist()]
        ([1.0, 0.75], [0.75, 0.25])
    """

    def __init__(
        self,
        names: Sequence[str],
        vocab_size: int,
        tokens: Tensor | Sequence[int] | None = None,
        kernel: str = "auto",
    ) -> None:
        if isinstance(names, str) or not names:
            raise InputError(f"readouts are {names!r}; a list of names was expected", hint="e.g. ['dmrr']")
        require_known("readout", names, READOUTS)
        self.names = tuple(names)
        self.vocab_size = vocab_size
        self.tokens = None if tokens is None else checked_tokens(tokens, vocab_size)
        self.kernel = kernel
        self.count = 0
        self.ranks = RankSum(vocab_size, self.tokens, kernel) if DMRR in names else None
        width = vocab_size if self.tokens is None else self.tokens.numel()
        terms = dict.fromkeys(READOUTS[name].term for name in names if name != DMRR)
        self._sums = {term: torch.zeros(width, dtype=torch.float64) for term in terms}

    def add(self, logits: Tensor | Positions) -> None:
        """Add positions: logits (P, V) in the head's own dtype; ``Positions`` share what other sums have computed."""
        parts = [logits] if isinstance(logits, Positions) else blocks(logits) if self._sums else ()
        whole = logits.logits if isinstance(logits, Positions) else logits
        if self.ranks is not None:
            self.ranks.add(whole)
        for positions in parts:
            for term, total in self._sums.items():
                values = TERMS[term](positions)
                if self.tokens is not None:
                    values = values[:, self.tokens.to(values.device)]
                self._sums[term] = total.to(values.device) + values.sum(dim=0)
        self.count += whole.shape[0]

    def merge(self, other: ReadoutSums) -> None:
        """Add the positions of another sum of the same readouts, vocabulary and tokens."""
        if self.names != other.names:
            raise MismatchError(f"sums of {self.names} and of {other.names} cannot be merged")
        if self.ranks is not None and other.ranks is not None:
            self.ranks.merge(other.ranks)
        for term, total in self._sums.items():
            self._sums[term] = total + other._sums[term].to(total.device)
        self.count += other.count

    def empty(self) -> ReadoutSums:
        """A sum of the same readouts without positions."""
        return ReadoutSums(self.names, self.vocab_size, self.tokens, self.kernel)

    def evidence(self, name: str = DMRR) -> Tensor:
        """The evidence under one readout, float32 (V,), or (R,) in the order of the tokens."""
        require_known("readout of this measurement", [name], self.names)
        if self.ranks is not None and name == DMRR:
            return self.ranks.dmrr()
        if self.count == 0:
            raise NumericsError(
                "no position was measured, so there is no mean", hint="the prompt holds no image"
            )
        readout = READOUTS[name]
        mean = self._sums[readout.term] / self.count
        values = (mean.clamp_min(FLOOR).log() if readout.is_log else mean).float()
        if not torch.isfinite(values).all():
            raise NumericsError(
                f"the {readout.title} of some tokens is not finite", hint="some logits are NaN or infinite"
            )
        return values
