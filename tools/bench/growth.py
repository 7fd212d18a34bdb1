"""How cost grows: with positions, vocabulary, batch and length."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import torch

from reweigh.method.sums import ReadoutSums
from tools.bench.generation import Subject, generate
from tools.bench.report import Measurement
from tools.bench.step import step_edit
from tools.bench.timing import Rounds, Variant

POSITIONS = (72, 144, 288, 576)
VOCABULARIES = (1500, 8000, 32000, 64000, 128000, 256000)
BATCHES = (1, 2, 4, 8, 16)
LENGTHS = (16, 64, 256)


def growth_figures(rounds: Rounds, subject: Subject | None) -> Iterator[Measurement]:
    """Evidence by positions and vocabulary, the step by batch, and a generation by length if a subject is given."""
    yield from _grown("positions, V=32000", POSITIONS, {n: _evidence(n, 32000) for n in POSITIONS}, rounds)
    yield from _grown("vocabulary, P=48", VOCABULARIES, {n: _evidence(48, n) for n in VOCABULARIES}, rounds)
    yield from _grown("batch, V=32000", BATCHES, {n: _step(n) for n in BATCHES}, rounds)
    if subject is not None:
        yield from _lengths(subject, rounds)


def _evidence(positions: int, vocab: int) -> Variant:
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(positions, vocab, generator=random)
    tokens = torch.randperm(vocab, generator=random)[: vocab // 12].sort().values
    return lambda: ReadoutSums(vocab, tokens).add(logits)


def _step(batch: int) -> Variant:
    logits = 3 * torch.randn(batch, 32000, generator=torch.Generator().manual_seed(0))
    strengths = torch.zeros(batch, 32000)
    return lambda: step_edit(logits, strengths)


def _grown(
    what: str, sizes: tuple[int, ...], variants: dict[int, Variant], rounds: Rounds
) -> Iterator[Measurement]:
    """Cost per unit of size; a ratio of 1 to the smallest size is proportional growth, less is better."""
    timings = rounds.compare(f"growth, {what}", {str(size): variants[size] for size in sizes}, least=0.002)
    smallest = timings[str(sizes[0])]
    for size in sizes:
        timing = timings[str(size)]
        ratio = timing.over(smallest)
        share = sizes[0] / size
        yield Measurement(
            "growth",
            what,
            f"{what.split(',')[0]} {size}",
            timing.per(1000),
            "us",
            None if size == sizes[0] else ratio.map(partial(operator.mul, share)),
            "the smallest, per unit",
        )


def _lengths(subject: Subject, rounds: Rounds) -> Iterator[Measurement]:
    for length in LENGTHS:
        timings = rounds.compare(
            f"growth, {subject}, length {length}",
            {
                "greedy": lambda n=length: generate(subject, nullcontext(), n),  # type: ignore[misc]
                "cached": lambda n=length: generate(
                    subject, subject.reweigh.using(evidence=subject.evidence), n
                ),  # type: ignore[misc]
            },
        )
        yield Measurement(
            "growth",
            f"length, {subject.name}",
            f"cached evidence, {length} tokens",
            timings["cached"].per(1e6),
            "ms",
            timings["cached"].over(timings["greedy"]),
            "greedy",
        )
