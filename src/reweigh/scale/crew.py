"""The driver's loop: hand shards to a crew of workers until each has been returned once, whoever fails on the way.

A crew is whatever starts work and reports what became of it: actors on Ray, or a simulated one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from reweigh.errors import ReweighError
from reweigh.scale.schedule import ATTEMPTS, Schedule

Source = TypeVar("Source")
Task = TypeVar("Task")


class LazyTasks(Mapping[int, Task], Generic[Source, Task]):
    """Tasks by number, each made of its source when it is handed out, so that few are in memory."""

    def __init__(self, sources: Mapping[int, Source], make: Callable[[Source], Task]) -> None:
        self._sources, self._make = sources, make

    def __getitem__(self, number: int) -> Task:
        return self._make(self._sources[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


@dataclass(frozen=True)
class Report:
    """What became of a shard that a worker had: its result, or why there is none."""

    worker: str
    shard: int
    result: Any = None
    failure: str | None = None


class Crew(Protocol):
    """Workers that take one shard at a time."""

    def now(self) -> float:
        """The time, in seconds."""

    def idle(self) -> Sequence[str]:
        """Workers without a shard."""

    def give(self, worker: str, shard: int, task: Any) -> None:
        """Let an idle worker begin."""

    def wait(self) -> Sequence[Report]:
        """Wait for workers to report; an empty list says that time passed."""


def work_through(
    crew: Crew, tasks: Mapping[int, Any], others: list[Report] | None = None
) -> Generator[tuple[int, Any], None, None]:
    """Yield the result of each task as it comes, each once.

    Loops that take turns with one crew share the list ``others``: a report about another loop's task waits there for it.

    Raises:
        ReweighError: A task failed again and again.
    """
    schedule, own = Schedule.of(tasks), frozenset(tasks)
    others = [] if others is None else others
    while not schedule.is_finished:
        reports: Sequence[Report] = [report for report in others if report.shard in own]
        others[:] = [report for report in others if report.shard not in own]
        if not reports:
            _give_out(crew, schedule, tasks)
            reports = crew.wait()
        for report in reports:
            if report.shard not in own:
                others.append(report)
            elif report.failure is None:
                if schedule.finish(report.worker, report.shard, crew.now()):
                    yield report.shard, report.result
            elif schedule.fail(report.worker, report.shard) >= ATTEMPTS:
                raise ReweighError(
                    f"shard {report.shard} failed {ATTEMPTS} times, the last time on {report.worker}: {report.failure}",
                    hint="what was finished is kept; the same command goes on from there",
                )


def _give_out(crew: Crew, schedule: Schedule, tasks: Mapping[int, Any]) -> None:
    """Let idle workers begin, as long as there is something for them."""
    for worker in crew.idle():
        shard = schedule.claim(worker, crew.now())
        if shard is None:
            break
        crew.give(worker, shard, tasks[shard])


def by_number(results: Iterator[tuple[int, Any]]) -> Callable[[int], Any]:
    """Take results by number, in any order; those that come before they are asked for are held in memory."""
    early: dict[int, Any] = {}

    def take(number: int) -> Any:
        while number not in early:
            came, result = next(results)
            early[came] = result
        return early.pop(number)

    return take
