"""Exact evidence against the head's own matrix product and against the obvious argsort, for the shapes of real models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.errors import require_known
from reweigh.method.kernels import available_kernels
from reweigh.method.lens import CHUNK
from reweigh.method.sums import ReadoutSums
from tools.bench.report import Measurement, peak_mib
from tools.bench.timing import Rounds, Timing, Variant


@dataclass(frozen=True)
class Shape:
    """Positions, vocabulary, registered tokens and width of one model; random weights stand for its own."""

    name: str
    positions: int
    vocab: int
    registered: int
    width: int

    def __str__(self) -> str:
        return f"{self.name} P={self.positions} V={self.vocab} R={self.registered} d={self.width}"


SHAPES = (
    Shape("embedded", 64, 1280, 348, 192),
    Shape("instructblip", 32, 32000, 2708, 4096),
    Shape("llava-1.5", 576, 32000, 2580, 4096),
    Shape("qwen2.5-vl", 1000, 152064, 7028, 3584),
    Shape("gemma-3", 256, 262208, 7000, 2560),
)

GOALS = {
    ("numba", "float32"): 0.06,
    ("numba", "bfloat16"): 0.06,
    ("numba", "float16"): 0.06,
    ("numpy", "float32"): 0.35,
}
"""Largest cost relative to the head's product, for V = 32,000 and a full chunk of positions."""

SLOW = 100_000
"""From this vocabulary on, only the chosen kernels and the argsort are timed."""


def find_shapes(names: Sequence[str]) -> list[Shape]:
    """Shapes by name, all if none is named."""
    known = {shape.name: shape for shape in SHAPES}
    require_known("shape", names, known)
    return [known[name] for name in names] or list(SHAPES)


def kernel_figures(shapes: Sequence[Shape], rounds: Rounds) -> Iterator[Measurement]:
    """Cost per logit of every kernel in turn with the product, one chunk of positions at a time as in real use."""
    for shape in shapes:
        yield from _figures(shape, rounds)


@torch.no_grad()
def _figures(shape: Shape, rounds: Rounds) -> Iterator[Measurement]:
    random = torch.Generator().manual_seed(0)
    rows = min(shape.positions, CHUNK)
    states = torch.randn(rows, shape.width, generator=random)
    head = torch.randn(shape.vocab, shape.width, generator=random).mul_(3 / shape.width**0.5)
    logits = states @ head.T
    tokens = torch.randperm(shape.vocab, generator=random)[: shape.registered].sort().values
    variants: dict[str, Variant] = {"head's product": lambda: states @ head.T}
    names: dict[str, tuple[str, str]] = {}
    for kernel in available_kernels():
        for dtype in ("float32", "bfloat16", "float16"):
            if kernel == "torch" or (shape.vocab >= SLOW and kernel != available_kernels()[0]):
                continue  # torch's kernel is meant for accelerators
            cast = logits.to(getattr(torch, dtype))
            names[name := f"{dtype}, {kernel}"] = (kernel, dtype)
            variants[name] = _ranking(cast, tokens, kernel)
    variants["float32, naive argsort"] = lambda: naive_argsort(logits)
    timings = rounds.compare(f"kernels, {shape}", variants, least=0.002)
    judged = shape.vocab == 32000 and rows == CHUNK
    for name, timing in timings.items():
        variants[name]()  # if all rounds come from an earlier run, nothing has been compiled yet
        yield Measurement(
            "kernels",
            str(shape),
            name,
            timing.per(logits.numel()),
            "ns per logit",
            timing.over(timings["head's product"]) if name != "head's product" else None,
            "head's product",
            GOALS.get(names[name]) if judged and name in names else None,
            peak_mib(variants[name]),
        )
    yield from _gain(shape, timings, logits)


def _gain(shape: Shape, timings: dict[str, Timing], logits: Tensor) -> Iterator[Measurement]:
    """Compare the chosen kernel with the argsort it replaces; the goal is an eighth of its cost."""
    best = f"float32, {available_kernels()[0]}"
    yield Measurement(
        "gain",
        str(shape),
        best,
        timings[best].per(logits.numel()),
        "ns per logit",
        timings[best].over(timings["float32, naive argsort"]),
        "naive argsort",
        1 / 8 if shape.vocab >= 32000 else None,
    )


def _ranking(logits: Tensor, tokens: Tensor, kernel: str) -> Variant:
    return lambda: ReadoutSums(logits.shape[1], tokens, kernel=kernel).add(logits)


def naive_argsort(logits: Tensor) -> Tensor:
    """The obvious version: sort, number, scatter. It gives ties different ranks, so it is not even correct."""
    order = torch.argsort(logits, dim=1, descending=True)
    ranks = torch.arange(1, logits.shape[1] + 1, dtype=torch.float32)
    return torch.empty_like(logits).scatter_(1, order, (1 / ranks).expand(logits.shape)).mean(dim=0)
