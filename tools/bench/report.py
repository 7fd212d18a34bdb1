"""What was measured: each cost with its ratio, as tables, a page and a frame. Independent of what is measured."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row
from reweigh.lab.views.page import Page
from reweigh.lab.views.report import Report, claim_report
from reweigh.lab.views.table import Cell, Column, Table
from reweigh.peak_memory import peak_bytes, reset_peak, resident_bytes
from reweigh.provenance import package_versions, versions
from reweigh.text import in_words

FILES = ("speed.md", "speed.html", "speed.json")


def claim_files(out: Path) -> None:
    """Refuse a folder with other files under the names that a measurement writes."""
    claim_report(out, FILES)


@dataclass(frozen=True)
class Measurement:
    """The cost of one variant in one case.

    Attributes:
        part: What was timed: kernels, step, generation, growth.
        case: The shape or model.
        variant: What was run.
        cost: Its cost in ``unit``.
        unit: e.g. "ns per logit".
        ratio: Cost relative to ``against``, formed within rounds.
        goal: The largest ratio this project aims for.
        memory: Peak memory above what was held before, in MiB, if it was measured.
    """

    part: str
    case: str
    variant: str
    cost: Estimate
    unit: str
    ratio: Estimate | None = None
    against: str = ""
    goal: float | None = None
    memory: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "part": self.part,
            "case": self.case,
            "variant": self.variant,
            "cost": list(self.cost.parts),
            "unit": self.unit,
            "ratio": None if self.ratio is None else list(self.ratio.parts),
            "against": self.against,
            "goal": self.goal,
            "within_goal": self.within_goal,
            "memory_mib": self.memory,
        }

    def rows(self) -> list[Row]:
        """Return cost, ratio and peak as rows of a frame."""
        found = {self.unit: self.cost, f"x {self.against}": self.ratio}
        found["peak MiB"] = None if self.memory is None else Estimate(self.memory)
        keys = {"part": self.part, "case": self.case, "variant": self.variant}
        return [Row({**keys, "figure": name}, value) for name, value in found.items() if value is not None]

    @property
    def within_goal(self) -> bool | None:
        """Whether the median ratio meets the goal; ``None`` where there is no goal."""
        return None if self.goal is None or self.ratio is None else self.ratio.number <= self.goal

    @property
    def title(self) -> str:
        """The part and the case, which a table is about."""
        return f"{self.part}: {self.case}"


def build_report(machine: Mapping[str, Any], rounds: int, measured: Sequence[Measurement]) -> Report:
    """Return measurements, in order, with the machine that they were made on."""
    about = {"machine": dict(machine), "rounds": rounds}
    numbers = {**about, "figures": [one.to_json() for one in measured]}
    frame = Frame([row for one in measured for row in one.rows()], about)
    return Report(FILES, build_page(machine, measured), numbers, frame)


def build_page(machine: Mapping[str, Any], measured: Sequence[Measurement]) -> Page:
    """Return a table and a drawing of each case, and the machine."""
    page = Page(
        "What it costs here", lead=str(machine["processor"]), footer="Written by python -m tools.bench."
    )
    for title, some in groupby(measured, key=lambda one: one.title):
        rows = list(some)
        page.section(title).table(case_table(rows))
        ratios = {one.variant: one.ratio for one in rows if one.ratio is not None}
        page.intervals(ratios, f"Cost as a multiple of: {rows[-1].against}.", digits=3)
    about: list[list[Cell]] = [[name.replace("_", " "), in_words(value)] for name, value in machine.items()]
    return page.section("Machine").table(Table([Column("what"), Column("value")], about))


def case_table(measured: Sequence[Measurement]) -> Table:
    """Return the measurements of one case as a table."""
    small = any(one.ratio and abs(one.ratio.number) < 0.1 for one in measured)
    strict = any(one.goal is not None and abs(one.goal - 1) <= 0.01 for one in measured)
    against = next((one.against for one in measured if one.against), "")
    columns = [
        Column("variant"),
        Column(measured[0].unit, digits=2),
        Column(f"x {against}", digits=4 if small or strict else 3),
    ]
    rows: list[list[Cell]] = [[one.variant, one.cost, one.ratio] for one in measured]
    if any(one.goal is not None for one in measured):
        columns.append(Column("goal"))
        rows = [[*row, _goal(one)] for row, one in zip(rows, measured, strict=True)]
    if any(one.memory is not None for one in measured):
        columns.append(Column("peak MiB", digits=0))
        rows = [[*row, one.memory] for row, one in zip(rows, measured, strict=True)]
    return Table(columns, rows)


def _goal(one: Measurement) -> str:
    return "" if one.goal is None else f"≤ {one.goal:g} {'met' if one.within_goal else 'missed'}"


def machine() -> dict[str, Any]:
    """Return processor, cores, memory, system, versions, threads and the time."""
    import torch

    from reweigh.method.kernels import choose_kernel

    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "kernel": choose_kernel("auto", torch.device("cpu"), torch.float32).name,
        "versions": {**versions(), **package_versions(["numba"])},
    }


def setting(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must match for rounds to be pooled: everything but the time and the load."""
    return {name: value for name, value in machine.items() if name not in ("time", "load_average")}


def _processor() -> str:
    with contextlib.suppress(OSError):
        if found := re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text()):
            return found.group(1)
    return platform.processor() or "unknown"


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def peak_mib(run: Callable[[], object]) -> float | None:
    """Return the peak resident memory of ``run`` above what was held before it; ``None`` where it is not reported."""
    release_memory()
    before = resident_bytes() if reset_peak() else None
    run()
    peak = peak_bytes()
    return None if before is None or peak is None else max(0.0, (peak - before) / 2**20)


def release_memory() -> None:
    """Return freed memory to the system, so that it does not hide what this run needs."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
