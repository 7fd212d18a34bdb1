"""What was measured: each cost with its ratio, shown, written and drawn as it comes. Knows nothing of what is measured."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reweigh.estimate import Estimate
from reweigh.files.outputs import claim, write_output, write_sealed_output
from reweigh.files.seals import require_own_rows
from reweigh.memory import peak_bytes, reset_peak, resident_bytes
from reweigh.provenance import package_versions, versions
from reweigh.results.charts import INK, chart, dots
from reweigh.results.table import Cell, Column, Table
from reweigh.speed.timing import KEPT, OWNER
from reweigh.text import in_words

SPEED, MARKDOWN = "speed.json", "speed.md"


def claim_files(out: Path, parts: Iterable[str]) -> None:
    """Refuse a folder with files of others under the names that a measurement of these parts writes."""
    drawn = (f"{part}.{ending}" for part in parts for ending in ("png", "svg"))
    claim([out / name for name in (SPEED, MARKDOWN, *drawn)], beside=out / SPEED)
    require_own_rows(out / KEPT, owner=OWNER)


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
        goal: The largest ratio this project asks of itself here.
        memory: Peak memory above what was held before, in MiB, where it was looked at.
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
        """Plain values."""
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

    @property
    def within_goal(self) -> bool | None:
        """Whether the median ratio meets the goal; ``None`` where there is no goal."""
        return None if self.goal is None or self.ratio is None else self.ratio.number <= self.goal


class SpeedReport:
    """Measurements in the order they come, under a description of the machine.

    Args:
        machine: The description that ``machine()`` gives.
        rounds: Rounds asked for.
        out: Folder for speed.json, speed.md and a plot of each part; ``None`` writes nothing.
        show: Called with each table once its case is complete.
    """

    def __init__(
        self, machine: Mapping[str, Any], rounds: int, out: Path | None, *, show: Callable[[Table], None]
    ) -> None:
        self.machine, self.rounds = machine, rounds
        self.measured: list[Measurement] = []
        self._out, self._show, self._shown = out, show, 0

    def to_json(self) -> dict[str, Any]:
        """Everything measured so far."""
        return {
            "machine": dict(self.machine),
            "rounds": self.rounds,
            "figures": [one.to_json() for one in self.measured],
        }

    def add(self, new: Measurement) -> None:
        """Add a measurement; the first of another case ends the one before."""
        last = self.measured[-1] if self.measured else new
        if (last.part, last.case) != (new.part, new.case):
            self._end_case()
        self.measured.append(new)

    def end(self) -> None:
        """Show the last case and draw every part that has ratios."""
        self._end_case()
        if self._out is not None:
            for part in dict.fromkeys(one.part for one in self.measured):
                draw(self.measured, part, self._out / part)

    def _end_case(self) -> None:
        new, self._shown = self.measured[self._shown :], len(self.measured)
        for table in tables(new):
            self._show(table)
        if new and self._out is not None:
            write_sealed_output(self._out / SPEED, self.to_json())
            lines = [f"- {name.replace('_', ' ')}: {in_words(value)}" for name, value in self.machine.items()]
            pages = [table.markdown() for table in tables(self.measured)]
            write_output(self._out / MARKDOWN, "\n".join(lines) + "\n\n" + "\n".join(pages))


def tables(measured: Sequence[Measurement]) -> list[Table]:
    """One table per part and case."""
    cases: dict[tuple[str, str], list[Measurement]] = {}
    for one in measured:
        cases.setdefault((one.part, one.case), []).append(one)
    return [_table(f"{part}: {case}", some) for (part, case), some in cases.items()]


def _table(caption: str, measured: Sequence[Measurement]) -> Table:
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
        columns.append(Column("goal", digits=3))
        rows = [[*row, _goal(one)] for row, one in zip(rows, measured, strict=True)]
    if any(one.memory is not None for one in measured):
        columns.append(Column("peak MiB", digits=0))
        rows = [[*row, one.memory] for row, one in zip(rows, measured, strict=True)]
    return Table(columns, rows, caption=caption)


def _goal(one: Measurement) -> str:
    return "" if one.goal is None else f"<= {one.goal:g} {'met' if one.within_goal else 'missed'}"


def draw(measured: Sequence[Measurement], part: str, path: Path) -> bool:
    """Draw the ratios of one part, a goal as a bar across its line; False if it has none."""
    cases: dict[str, list[Measurement]] = {}
    for one in measured:
        if one.part == part and one.ratio is not None:
            cases.setdefault(one.case, []).append(one)
    if not cases:
        return False
    heights = [len(rows) + 1.6 for rows in cases.values()]
    layout: dict[str, Any] = {"sharex": True, "squeeze": False, "height_ratios": heights}
    with chart(path, height=0.26 * sum(heights) + 0.4, rows=len(cases), **layout) as panels:
        for panel, (case, rows) in zip(panels[:, 0], cases.items(), strict=True):
            panel.set_xscale("log")
            dots(panel, {"": {one.variant: one.ratio for one in rows}}, digits=3)
            panel.set_title(case)
            panel.axvline(1, color=INK, lw=0.8)
            panel.xaxis.set_major_formatter("{x:g}")
            for index, one in enumerate(rows):
                if one.goal is not None:
                    panel.plot([one.goal], [index], "|", color=INK, ms=11, mew=1.6)
        panels[-1, 0].set_xlabel(f"cost, as a multiple of: {next(iter(cases.values()))[0].against}")
    return True


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system, versions, threads and the moment."""
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
    """What must match for rounds to be pooled: everything but the time and the load."""
    return {name: value for name, value in machine.items() if name not in ("time", "load_average")}


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        found = re.search(r"model name\s*:\s*(.+)", listing.read_text())
        if found:
            return found.group(1)
    return platform.processor() or "unknown"


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def peak_mib(run: Callable[[], object]) -> float | None:
    """Peak resident memory of ``run`` above what was held before it, in MiB; ``None`` where it is not reported."""
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
