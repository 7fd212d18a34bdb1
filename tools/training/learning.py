"""The training loop: single-threaded workers that average gradients, checkpoints, resuming, a log of losses.

It knows nothing about what is learned; a ``Lesson`` gives the module and the loss of a batch. Two workers of one
thread each are about three times as fast on two busy cores as one worker of two threads. A killed run resumes
from its last checkpoint, and its log reads as if it had never stopped.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import append_jsonl, read_jsonl, read_tensors, write_tensors
from reweigh.progress import bar

LOG = "losses.jsonl"


class Lesson(Protocol):
    """What a stage teaches."""

    module: Any
    """The ``torch.nn.Module`` whose parameters are trained and saved."""

    def loss(self, step: int, rank: int, world: int) -> tuple[Any, dict[str, float]]:
        """The loss of this worker's share of the batch at ``step``, and figures for the log."""
        ...


@dataclass(frozen=True)
class Plan:
    """Length and rates of one stage."""

    name: str
    steps: int
    rate: float
    horizon: int = 0
    """Steps over which the rate falls, where that is more than the stage runs for."""
    warmup: int = 100
    floor: float = 0.1
    decay: float = 0.05
    clip: float = 1.0
    slow: str = ""
    """Parameters whose name starts so learn at ``slow_rate`` of the full rate."""
    slow_rate: float = 0.3
    every: int = 100
    """Steps between checkpoints."""
    log: int = 10
    """Steps between lines of the log."""


def learn(folder: Path, plan: Plan, make: Callable[[], Lesson], workers: int = 2) -> None:
    """Run a stage to its end from its last checkpoint. ``make`` is called once in each worker."""
    folder.mkdir(parents=True, exist_ok=True)
    if done(folder, plan):
        return
    if workers == 1:
        _work(0, 1, "", folder, plan, make, os.getppid())
        return
    from torch.multiprocessing.spawn import spawn

    with tempfile.TemporaryDirectory() as meeting:
        given = (workers, f"file://{meeting}/store", folder, plan, make, os.getpid())
        spawn(_work, args=given, nprocs=workers, join=True)  # type: ignore[no-untyped-call]


def state_path(folder: Path, plan: Plan) -> Path:
    return folder / f"{plan.name}.safetensors"


def done(folder: Path, plan: Plan) -> bool:
    """Whether the stage has reached its last step."""
    path = state_path(folder, plan)
    return path.is_file() and int(read_tensors(path)["step"][0]) >= plan.steps


def weights(folder: Path, name: str) -> dict[str, Any]:
    """The current or final parameters of a stage, as torch tensors by name."""
    import torch

    path = folder / f"{name}.safetensors"
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist", hint=f"run the stage {name!r} first")
    tensors = read_tensors(path)
    return {k[6:]: torch.from_numpy(v) for k, v in tensors.items() if k.startswith("param.")}


def rate_at(plan: Plan, step: int) -> float:
    """Linear warm-up, then a cosine down to ``floor`` of the full rate."""
    if step < plan.warmup:
        return plan.rate * (step + 1) / plan.warmup
    share = (step - plan.warmup) / max(1, (plan.horizon or plan.steps) - plan.warmup)
    return plan.rate * (plan.floor + (1 - plan.floor) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0))))


def _work(
    rank: int, world: int, address: str, folder: Path, plan: Plan, make: Callable[[], Lesson], parent: int
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if world > 1:
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    lesson = make()
    names = [(name, p) for name, p in lesson.module.named_parameters() if p.requires_grad]
    optimizer = _optimizer(names, plan)
    start = _restore(folder, plan, names, optimizer, rank)
    began = time.monotonic()
    shown = bar(plan.name, total=plan.steps, done=start, unit="step", show=None if rank == 0 else False)
    for step in range(start, plan.steps):
        if os.getppid() != parent:  # the command was killed: a worker must not continue alone
            return
        for group in optimizer.param_groups:
            group["lr"] = rate_at(plan, step) * group["factor"]
        loss, figures = lesson.loss(step, rank, world)
        loss.backward()
        _average([p for _, p in names], world)
        torch.nn.utils.clip_grad_norm_([p for _, p in names], plan.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        shown.update(1)
        if rank:
            continue
        if step % plan.log == 0 or step + 1 == plan.steps:
            seconds = round(time.monotonic() - began, 1)
            left = round(seconds / (step + 1 - start) * (plan.steps - step - 1))
            row = {"stage": plan.name, "step": step, "loss": round(float(loss.detach()), 5)}
            row |= {k: round(v, 5) for k, v in figures.items()}
            append_jsonl(folder / LOG, [row | {"seconds": seconds, "left": left}])
            shown.set_postfix(loss=row["loss"])
        if (step + 1) % plan.every == 0 or step + 1 == plan.steps:
            _save(state_path(folder, plan), names, optimizer, step + 1)
    shown.close()
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def _optimizer(names: list[tuple[str, Any]], plan: Plan) -> Any:
    """AdamW with decay on matrices only, and slower parameters where the plan says so."""
    import torch

    groups: dict[tuple[float, float], list[Any]] = {}
    for name, p in names:
        decay = plan.decay if p.ndim >= 2 and "embed" not in name else 0.0
        factor = plan.slow_rate if plan.slow and name.startswith(plan.slow) else 1.0
        groups.setdefault((decay, factor), []).append(p)
    listed = [{"params": ps, "weight_decay": d, "factor": f} for (d, f), ps in groups.items()]
    return torch.optim.AdamW(listed, lr=plan.rate, betas=(0.9, 0.98), fused=True)


def _average(params: list[Any], world: int) -> None:
    """Replace gradients by their mean over the workers, in one message."""
    import torch
    import torch.distributed as dist

    for p in params:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    if world == 1:
        return
    flat = torch.cat([p.grad.reshape(-1) for p in params])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for p in params:
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def _save(path: Path, names: list[tuple[str, Any]], optimizer: Any, step: int) -> None:
    import numpy as np

    tensors = {"step": np.array([step], dtype=np.int64)}
    for name, p in names:
        tensors[f"param.{name}"] = p.detach().numpy()
        state = optimizer.state[p]
        tensors[f"mean.{name}"] = state["exp_avg"].numpy()
        tensors[f"square.{name}"] = state["exp_avg_sq"].numpy()
    write_tensors(path, tensors)


def _restore(folder: Path, plan: Plan, names: list[tuple[str, Any]], optimizer: Any, rank: int) -> int:
    """Load parameters and moments; the first worker also cuts the log back to the checkpoint."""
    import torch

    path = state_path(folder, plan)
    tensors = read_tensors(path) if path.is_file() else None
    step = 0
    if tensors is not None:
        step = int(tensors["step"][0])
        for name, p in names:
            p.data.copy_(torch.from_numpy(tensors[f"param.{name}"]))
            optimizer.state[p] = {
                "step": torch.tensor(float(step)),
                "exp_avg": torch.from_numpy(tensors[f"mean.{name}"]),
                "exp_avg_sq": torch.from_numpy(tensors[f"square.{name}"]),
            }
    if rank == 0:
        _cut_log(folder / LOG, plan.name, step)
    return step


def _cut_log(path: Path, stage: str, step: int) -> None:
    if not path.is_file():
        return
    rows = read_jsonl(path)
    kept = [row for row in rows if row["stage"] != stage or row["step"] < step]
    if len(kept) < len(rows):
        path.unlink()
        append_jsonl(path, kept)
