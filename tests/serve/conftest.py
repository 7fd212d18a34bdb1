"""A running server on the embedded model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import httpx
import pytest
from live import Running, running

from reweigh.attached import Attached
from reweigh.serve.app import Server
from reweigh.serve.bounds import Bounds
from reweigh.serve.served import Served
from reweigh.world import table_path
from tools.bench.embedded import embedded_model


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer than httpx's five seconds, which a busy machine can take for an answer."""
    for name in ("get", "post", "request", "stream"):
        monkeypatch.setattr(httpx, name, partial(getattr(httpx, name), timeout=60.0))


@pytest.fixture(scope="session")
def world() -> Served:
    model, processor = embedded_model()
    others = ("beam", "code", "opera", "vcd")
    return Served(model, processor, name="reweigh-world", table=table_path(), decoders=others, world=True)


@pytest.fixture(scope="session")
def reference(world: Served) -> Attached:
    """ReWEIGH on the same model, used without a server."""
    return world.reweigh()


@pytest.fixture(scope="session")
def house(world: Served) -> Iterator[Running]:
    with running(Server(world)) as found:
        yield found


@pytest.fixture
def running_server() -> Iterator[Callable[[Server], Running]]:
    """``running_server(server)``: any server, until the test ends."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(running(server))


@pytest.fixture
def serving(world: Served, running_server: Callable[[Server], Running]) -> Callable[..., Running]:
    """``serving(bounds, **options)``: a further server of the embedded model, with bounds of its own."""
    return lambda bounds=None, **options: running_server(Server(world, bounds or Bounds(), **options))
