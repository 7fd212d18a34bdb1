"""A crew of Ray actors: each loads its model once and works on the shards it is given; one that dies is started again.

An actor's recipe is a module-level function of this package and its arguments, so that a worker needs nothing but the
package. At most one result per actor is on its way, which bounds the object store.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reweigh.errors import InputError, MismatchError, MissingExtraError, ReweighError
from reweigh.progress import bar
from reweigh.provenance import first_difference
from reweigh.scale.crew import Report

LOCAL = "local"
"""The address that stands for a cluster of this machine, started for one command."""

STORE = 256 * 2**20
"""Bytes of the object store of a local cluster; results are far smaller."""

STARTS = 3
"""Times a cluster is started before that is given up."""

ANSWER = 10.0
"""Seconds in which somebody must listen at a cluster's address."""

POLL = 1.0
"""Seconds after which the driver looks for slow workers although nobody reported."""


class Worker(Protocol):
    """What works inside an actor."""

    def describe(self) -> dict[str, Any]:
        """What its results depend on; the same in every actor, or the work is refused."""

    def work(self, task: Any) -> Any:
        """Do one shard."""


@dataclass(frozen=True)
class Refusal:
    """An error of this package as it travels: it would come again on every worker, so that nothing is retried."""

    message: str
    hint: str | None


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where actors run, and what each one takes.

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
        if (self.workers is not None and self.workers < 1) or self.gpus < 0 or self.cpus < 0:
            raise InputError(
                f"{self.workers} workers with {self.gpus:g} GPUs and {self.cpus:g} CPUs each cannot be started"
            )

    def size(self, resources: dict[str, float]) -> int:
        """How many actors are started on a cluster of such resources."""
        needs = {"GPU": self.gpus, "CPU": self.cpus}
        fits = [int(resources.get(kind, 0) / need) for kind, need in needs.items() if need]
        most = min(fits, default=1)
        if most < 1:
            raise InputError(
                f"no worker with {self.gpus:g} GPUs and {self.cpus:g} CPUs fits the cluster, "
                f"which has {resources.get('GPU', 0):g} and {resources.get('CPU', 0):g}",
                hint="ask for less with --ray-gpus and --ray-cpus, or for another cluster",
            )
        return most if self.workers is None else min(self.workers, most)


class Actor:
    """The actor: makes its worker when it starts, and returns errors of this package as values."""

    def __init__(self, make: Callable[..., Worker], arguments: dict[str, Any]) -> None:
        self.worker: Worker | None = None
        self.refusal: Refusal | None = None
        try:
            self.worker = make(**arguments)
        except ReweighError as error:
            self.refusal = Refusal(error.message, error.hint)

    def describe(self) -> Any:
        """What the worker's results depend on."""
        return self._try(lambda worker: worker.describe())

    def work(self, task: Any) -> Any:
        """Do one shard."""
        return self._try(lambda worker: worker.work(task))

    def _try(self, call: Callable[[Worker], Any]) -> Any:
        if self.worker is None:
            return self.refusal
        try:
            return call(self.worker)
        except ReweighError as error:
            return Refusal(error.message, error.hint)


class RayCrew:
    """Actors as a crew; ``described`` is what they all agree on.

    Work begins with the first actor that answers; the others take part as they come. One that failed gets no shard before
    it has answered again: Ray starts a dead one anew, which takes as long as loading the model does.
    """

    def __init__(
        self, ray: Any, cluster: Cluster, make: Callable[..., Worker], arguments: dict[str, Any]
    ) -> None:
        self._ray = ray
        kind = ray.remote(Actor).options(
            num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_restarts=-1, max_task_retries=0
        )
        count = cluster.size(ray.cluster_resources())
        self._actors = {f"worker {number + 1}": kind.remote(make, arguments) for number in range(count)}
        self._busy: dict[Any, tuple[str, int]] = {}
        self._coming: dict[Any, str] = {self._ask(worker): worker for worker in self._actors}
        self.described: dict[str, Any] = self._first_described()

    def _first_described(self) -> dict[str, Any]:
        """Wait for the first actor that is there; a cluster that others use may have room for the rest later."""
        reason = ""
        with bar("waiting for a worker", unit="worker") as progress:
            while self._coming:
                for one in self._ray.wait([*self._coming], num_returns=1, timeout=POLL)[0]:
                    worker = self._coming.pop(one)
                    try:
                        return dict(_value(self._ray.get(one)))
                    except ReweighError:
                        raise
                    except Exception as error:  # what the actor's own start raised, in Ray's words
                        del self._actors[worker]
                        reason = _words(error)
                progress.refresh()
        raise ReweighError(
            f"no worker could be started, the last one because of {reason}",
            hint="every node needs reweigh with the same packages, and the model",
        )

    def _ask(self, worker: str) -> Any:
        return self._actors[worker].describe.options(max_task_retries=-1).remote()

    def _require_same(self, page: dict[str, Any]) -> None:
        """Refuse a worker whose results depend on something else: the whole would be a mixture."""
        if (found := first_difference(self.described, page)) is not None:
            raise MismatchError(
                "two workers differ in {}: {} and {}".format(found.key, *found.words),
                hint="give every node the same model, packages and kind of device",
            )

    def now(self) -> float:
        """Seconds of a clock that only moves forward."""
        return time.monotonic()

    def idle(self) -> Sequence[str]:
        """Actors that are there and have no shard."""
        taken = {worker for worker, _ in self._busy.values()} | set(self._coming.values())
        return [worker for worker in self._actors if worker not in taken]

    def give(self, worker: str, shard: int, task: Any) -> None:
        """Send a shard to an actor."""
        self._busy[self._actors[worker].work.remote(task)] = worker, shard

    def wait(self) -> list[Report]:
        """Take what the next actor returns, or what its death left."""
        waited = [*self._busy, *self._coming]
        if not waited:
            raise ReweighError(
                "no worker is left: none could be started again",
                hint="what was finished is kept; look after the cluster, then run the same command",
            )
        ready, _ = self._ray.wait(waited, num_returns=1, timeout=POLL)
        return [report for one in ready for report in self._reports(one)]

    def _reports(self, one: Any) -> list[Report]:
        if one in self._coming:
            self._welcome(one)
            return []
        worker, shard = self._busy.pop(one)
        try:
            return [Report(worker, shard, result=_value(self._ray.get(one)))]
        except ReweighError:
            raise
        except Exception as error:  # the actor died, its node went, or the engine failed in its own way
            self._coming[self._ask(worker)] = worker
            return [Report(worker, shard, failure=_words(error))]

    def _welcome(self, one: Any) -> None:
        """Let an actor that was started again take part, if it is what it was; one that cannot be is given up."""
        worker = self._coming.pop(one)
        try:
            self._require_same(_value(self._ray.get(one)))
        except ReweighError:
            raise
        except Exception:
            del self._actors[worker]


def _words(error: Exception) -> str:
    """The end of what Ray says of an error, where its cause stands."""
    return f"{type(error).__name__}: {str(error).strip()[-400:]}"


def _value(answer: Any) -> Any:
    if isinstance(answer, Refusal):
        raise ReweighError(answer.message, hint=answer.hint)
    return answer


@contextlib.contextmanager
def ray_crew(cluster: Cluster, make: Callable[..., Worker], arguments: dict[str, Any]) -> Iterator[RayCrew]:
    """Start actors that are ``make(**arguments)`` each, and end them; a local cluster ends with them."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("working on a cluster", "ray", "ray") from error

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address == LOCAL:
        os.environ.setdefault(
            "RAY_worker_niceness", "0"
        )  # else its workers come after all else on this machine
        options |= {"address": "local", "include_dashboard": False}
        options |= {"object_store_memory": STORE, "num_cpus": _local_cpus(cluster)}
    else:
        options |= {"address": cluster.address}
    _begin(ray, options)
    try:
        yield RayCrew(ray, cluster, make, arguments)
    finally:
        ray.shutdown()


def _begin(ray: Any, options: dict[str, Any]) -> None:
    """Join or start a cluster; one of a busy machine may need more than one try until Ray believes that it is there."""
    address = options["address"]
    if address != LOCAL:
        _require_answer(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    for left in reversed(range(STARTS if address == LOCAL else 1)):
        try:
            ray.init(**options)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise _no_cluster(address, error) from error
        except Exception as error:  # how Ray says that its processes did not come up in time
            ray.shutdown()
            if address != LOCAL:
                raise _no_cluster(address, error) from error
            if not left:
                raise ReweighError(
                    f"Ray could not be started ({_first_line(error)})",
                    hint="the machine may be too busy; the same command goes on later, with or without --ray",
                ) from error
        else:
            return


def _require_answer(address: str) -> None:
    """Refuse a ``host:port`` at which nobody listens: Ray itself would go on trying for many minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "://" in address:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _no_cluster(address: str, error: Exception) -> InputError:
    return InputError(
        f"no Ray cluster answers at {address!r} ({_first_line(error)})",
        hint="give local, auto, or the host:port of a running cluster's head; "
        "one that asks for a token needs it here too (RAY_AUTH_TOKEN)",
    )


def _local_cpus(cluster: Cluster) -> int:
    """CPUs that a cluster of this machine announces: its own, or as many as the workers asked for take."""
    here = os.cpu_count() or 1
    return here if cluster.workers is None else max(here, int(cluster.workers * max(cluster.cpus, 1)))
