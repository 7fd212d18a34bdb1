"""Work on Ray: each actor loads a model once and takes one task at a time; Ray restarts actors and retries tasks.

A module-level function of this package opens an actor's worker, so a node needs nothing but the package. The object store
holds at most one result per actor.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.errors import InputError, MismatchError, MissingExtraError, ReweighError, first_line
from reweigh.progress import bar
from reweigh.provenance import first_difference

LOCAL = "local"
"""The address of a cluster on this machine, started for one command."""

STORE = 256 * 2**20
"""Bytes of the object store of a local cluster; results are far smaller."""

RETRIES = 3
"""Times Ray repeats a task that failed or took its actor down with it."""

POLL = 1.0
"""Seconds between checks of actors that are not ready yet."""

Worker = tuple[dict[str, Any], Callable[[Any], Any]]
"""What runs in an actor: what its results depend on, the same in every actor, and the function that does a task."""


def by_number(results: Iterator[tuple[int, Any]]) -> Callable[[int], Any]:
    """Return results by number, in any order; those that arrive early are held in memory."""
    early: dict[int, Any] = {}

    def take(number: int) -> Any:
        while number not in early:
            came, result = next(results)
            early[came] = result
        return early.pop(number)

    return take


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where actors run, and the resources of each.

    Attributes:
        address: ``local``, ``auto`` for the cluster this machine belongs to, or ``host:port``.
        workers: Number of actors; as many as fit if not given.
        gpus: GPUs of each actor; a fraction shares one.
        cpus: CPUs of each actor.
    """

    address: str = LOCAL
    workers: int | None = None
    gpus: float = 0.0
    cpus: float = 1.0

    def __post_init__(self) -> None:
        fits = 0 <= self.gpus < math.inf and 0 <= self.cpus < math.inf
        if (self.workers is not None and self.workers < 1) or not fits:
            raise InputError(
                f"{self.workers} workers with {self.gpus:g} GPUs and {self.cpus:g} CPUs each cannot be started"
            )

    def size(self, resources: dict[str, float]) -> int:
        """Return how many actors to start on a cluster with these resources."""
        needs = {"GPU": self.gpus, "CPU": self.cpus}
        most = min((int(resources.get(kind, 0) / need) for kind, need in needs.items() if need), default=1)
        if most < 1:
            raise InputError(
                f"no worker with {self.gpus:g} GPUs and {self.cpus:g} CPUs fits the cluster, "
                f"which has {resources.get('GPU', 0):g} and {resources.get('CPU', 0):g}",
                hint="ask for less, e.g. --ray auto,gpus=0.5, or use another cluster",
            )
        return most if self.workers is None else min(self.workers, most)


class Actor:
    """Opens its worker when it starts, in the driver's folder if this node has it, so that relative paths mean the same.

    It returns errors of this package instead of raising them: every worker would raise the same, so Ray must not retry.
    """

    def __init__(self, open_worker: Callable[..., Worker], arguments: dict[str, Any], folder: str) -> None:
        self.refusal: ReweighError | None = None
        if Path(folder).is_dir():
            os.chdir(folder)
        try:
            self.described, self.do = open_worker(**arguments)
        except ReweighError as error:
            self.refusal = _portable(error)

    def describe(self) -> Any:
        """Return what the worker's results depend on."""
        return self.refusal or self.described

    def work(self, task: Any, described: dict[str, Any]) -> Any:
        """Do one task; refuse if this worker differs from the others, because results would be mixed."""
        if self.refusal is not None:
            return self.refusal
        try:
            if (found := first_difference(described, self.described)) is not None:
                raise MismatchError(
                    "two workers differ in {}: {} and {}".format(found.key, *found.words),
                    hint="give every node the same model, packages and kind of device",
                )
            return self.do(task)
        except ReweighError as error:
            return _portable(error)


def _portable(error: ReweighError) -> ReweighError:
    """Return an error that can be pickled, which some subclasses cannot."""
    return ReweighError(error.message, hint=error.hint)


class Pool:
    """The actors of a cluster; ``described`` is what their results depend on.

    Work starts as soon as one actor is ready; the others join when they are.
    """

    def __init__(
        self, ray: Any, cluster: Cluster, open_worker: Callable[..., Worker], arguments: dict[str, Any]
    ) -> None:
        self._ray = ray
        kind = ray.remote(Actor).options(
            num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_restarts=-1, max_task_retries=RETRIES
        )
        count, folder = cluster.size(ray.cluster_resources()), str(Path.cwd())
        actors = [kind.remote(open_worker, arguments, folder) for _ in range(count)]
        self._starting = {actor.describe.remote(): actor for actor in actors}
        self._idle: list[Any] = []
        self._reason = ""
        self.described: dict[str, Any] = {}
        with bar("waiting for a worker", unit="worker") as progress:
            while self._starting and not self._idle:
                self._wait({})
                progress.refresh()
        if not self._idle:
            raise ReweighError(
                f"no worker could be started; the last one failed with {self._reason}",
                hint="every node needs reweigh with the same packages, and the model",
            )
        self._shared = ray.put(self.described)

    def unordered(self, tasks: Iterable[tuple[int, Any]]) -> Generator[tuple[int, Any], None, None]:
        """Yield the number and the result of each numbered task, in the order of completion.

        A task is taken from the iterable when a worker is idle, so few are in memory.

        Raises:
            ReweighError: A worker refused, or a task failed again and again.
        """
        waiting, busy = iter(tasks), dict[Any, tuple[Any, int]]()
        try:
            while True:
                while self._idle and (task := next(waiting, None)) is not None:
                    actor = self._idle.pop(0)
                    ref = actor.work.options(retry_exceptions=True).remote(task[1], self._shared)
                    busy[ref] = actor, task[0]
                if not busy:
                    return
                for ref in self._wait(busy):
                    actor, number = busy.pop(ref)
                    self._idle.append(actor)
                    yield number, self._result(ref, number)
        finally:  # closed midway: an actor ends its task before it starts on the next
            self._idle += [actor for actor, _ in busy.values()]

    def _result(self, ref: Any, number: int) -> Any:
        try:
            result = self._ray.get(ref)
        except Exception as error:  # the actor died too often, or the engine raised
            raise ReweighError(
                f"task {number} failed {RETRIES + 1} times: {_words(error)}",
                hint="finished work is kept; the same command resumes",
            ) from error
        return _accepted(result)

    def _wait(self, busy: Iterable[Any]) -> list[Any]:
        """Wait for a call and return it if it is one of ``busy``; actors that have started meanwhile become idle."""
        ready, _ = self._ray.wait([*self._starting, *busy], num_returns=1, timeout=POLL)
        for ref in [ref for ref in ready if ref in self._starting]:
            actor = self._starting.pop(ref)
            ready.remove(ref)
            try:
                described = self._ray.get(ref)
            except Exception as error:  # what the actor's start raised; it is left out
                self._reason = _words(error)
                continue
            self.described = self.described or _accepted(described)
            self._idle.append(actor)
        return list(ready)


def _words(error: Exception) -> str:
    """Return the end of Ray's message, which names the cause."""
    return f"{type(error).__name__}: {str(error).strip()[-400:]}"


def _accepted(answer: Any) -> Any:
    if isinstance(answer, ReweighError):
        raise answer
    return answer


@contextlib.contextmanager
def ray_pool(
    cluster: Cluster, open_worker: Callable[..., Worker], arguments: dict[str, Any]
) -> Iterator[Pool]:
    """Start actors whose workers are ``open_worker(**arguments)``, and stop them and a local cluster at the end."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("working on a cluster", "ray", "ray") from error

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address == LOCAL:
        # otherwise Ray gives its workers a lower priority than everything else here
        os.environ.setdefault("RAY_worker_niceness", "0")
        cpus = max(os.cpu_count() or 1, int((cluster.workers or 0) * max(cluster.cpus, 1)))
        options |= {"include_dashboard": False, "object_store_memory": STORE, "num_cpus": cpus}
    try:
        ray.init(address=cluster.address, **options)
    except Exception as error:  # no answer, a wrong address, processes that start too slowly, ...
        ray.shutdown()
        raise InputError(
            f"no Ray cluster answers at {cluster.address!r} ({first_line(error)})",
            hint="use local, auto, or the host:port of a running cluster's head, and its token in RAY_AUTH_TOKEN",
        ) from error
    try:
        yield Pool(ray, cluster, open_worker, arguments)
    finally:
        ray.shutdown()
