"""One decoding step's edit against the head's product that made its logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from reweigh.method.edit import StepEditor
from tools.bench.kernels import Shape
from tools.bench.report import Measurement
from tools.bench.timing import Rounds

BATCHES = (1, 8)
GOAL = 0.03
"""Largest cost relative to the head's product, at V = 32,000 and batch 1."""


def step_edit(logits: Tensor, strengths: Tensor) -> Tensor:
    """What a step costs: candidates, their shifts, and the edit."""
    return StepEditor(strengths, torch.tensor(1.1))(logits)


def step_by_sorting(logits: Tensor, strengths: Tensor) -> Tensor:
    """The same as the paper words it, with a full sort, for comparison."""
    ordered, ids = torch.sort(logits, dim=1, descending=True, stable=True)
    reached = torch.softmax(ordered, dim=1).cumsum(dim=1)
    size = ((reached < 0.9).sum(dim=1, keepdim=True) + 1).clamp(2, 50)
    keep = torch.arange(logits.shape[1]) < size
    return logits.scatter(1, ids, ordered - 1.1 * strengths.gather(1, ids) * keep)


def step_figures(
    shapes: Sequence[Shape], rounds: Rounds, batches: Sequence[int] = BATCHES
) -> Iterator[Measurement]:
    """Microseconds per step, for each shape and batch size."""
    for shape in shapes:
        random = torch.Generator().manual_seed(0)
        head = torch.randn(shape.vocab, shape.width, generator=random).mul_(3 / shape.width**0.5)
        for batch in batches:
            yield from _figures(shape, head, torch.randn(batch, shape.width, generator=random), rounds)


@torch.no_grad()
def _figures(shape: Shape, head: Tensor, states: Tensor, rounds: Rounds) -> Iterator[Measurement]:
    logits = linear(states, head)
    strengths = torch.zeros_like(logits)
    case = f"{shape.name} V={shape.vocab} d={shape.width} batch {len(states)}"
    timings = rounds.compare(
        f"step, {case}",
        {
            "head's product": lambda: linear(states, head),
            "edit": lambda: step_edit(logits, strengths),
            "edit by a full sort": lambda: step_by_sorting(logits, strengths),
        },
        least=0.02,
    )
    for name, timing in timings.items():
        yield Measurement(
            "step",
            case,
            name,
            timing.per(1000),
            "us per step",
            None if name == "head's product" else timing.over(timings["head's product"]),
            "head's product",
            GOAL if name == "edit" and shape.vocab == 32000 and len(states) == 1 else None,
        )
