"""How the server uses concurrency: answers decoded together against one after the other, the first token, memory."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from reweigh.errors import ReweighError
from reweigh.memory import Memory
from reweigh.peak_memory import resident_bytes
from reweigh.text import DESCRIBE
from tools.bench.embedded import embedded_model
from tools.bench.report import Measurement, release_memory
from tools.bench.timing import Rounds, Variant, median_estimate

AT_ONCE = 16
GOAL = 1 / 3
"""Largest time of concurrent answers relative to their time one after the other."""
REQUESTS = 1000
WARM = 200
"""Requests after which memory is read for the first time."""
SHORT = 16
"""Tokens of an answer where memory is watched."""


def serve_figures(
    rounds: Rounds, *, requests: int = REQUESTS, at_once: int = AT_ONCE
) -> Iterator[Measurement]:
    """Throughput, time to the first token, and memory, through HTTP on the embedded model; by the wall clock."""
    from reweigh.serve.bounds import require_extra

    require_extra()
    model, processor = embedded_model()
    case = f"embedded model, {at_once} descriptions"
    with _running(model, processor, keep=False) as fresh, _running(model, processor, keep=True) as keeping:
        timings = rounds.compare(
            f"serve, {case}",
            {
                "one after the other": lambda: fresh.ask(at_once, together=1),
                f"{at_once} at once": lambda: fresh.ask(at_once, together=at_once),
            },
            clock=time.perf_counter,
        )
        alone, together = timings["one after the other"], timings[f"{at_once} at once"]
        yield Measurement("serve", case, "one after the other", alone.per(1e6 * at_once), "ms per answer")
        yield Measurement(
            "serve",
            case,
            f"{at_once} at once",
            together.per(1e6 * at_once),
            "ms per answer",
            together.over(alone),
            "one after the other",
            GOAL,
        )
        yield from _first_token(rounds, fresh, keeping)
        yield _memory(keeping, requests, at_once)


def _first_token(rounds: Rounds, fresh: _Client, keeping: _Client) -> Iterator[Measurement]:
    variants: dict[str, Variant] = {"evidence measured": fresh.first, "evidence kept": keeping.first}
    timings = rounds.compare("serve, first token", variants, clock=time.perf_counter)
    for name, timing in timings.items():
        ratio = None if name == "evidence measured" else timing.over(timings["evidence measured"])
        yield Measurement(
            "serve", "embedded model, first token", name, timing.per(1e6), "ms", ratio, "evidence measured"
        )


def _memory(client: _Client, requests: int, at_once: int) -> Measurement:
    """How much resident memory grows from the warm server to the end of many requests."""
    warm = min(WARM, requests // 2)
    client.ask(warm, together=at_once, most=SHORT)
    release_memory()
    before = resident_bytes()
    begin = time.perf_counter()
    client.ask(requests - warm, together=at_once, most=SHORT)
    passed = 1e3 * (time.perf_counter() - begin) / (requests - warm)
    release_memory()
    after = resident_bytes()
    grown = None if before is None or after is None else (after - before) / 2**20
    case = f"embedded model, {requests:,} requests of {SHORT} tokens; MiB since number {warm:,}"
    return Measurement(
        "serve", case, f"{at_once} at once", median_estimate([passed]), "ms per request", memory=grown
    )


class _Client:
    """Asks one server for descriptions of the world's scenes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pictures = [_picture(number) for number in range(AT_ONCE)]

    def ask(self, count: int, *, together: int, most: int | None = None) -> None:
        """Ask for ``count`` descriptions, so many together."""
        with ThreadPoolExecutor(together) as pool:
            for _ in pool.map(lambda number: self._answer(number, most), range(count)):
                pass

    def first(self) -> None:
        """Start a stream, and disconnect when its first words arrive."""
        with self._open({"stream": True, "max_tokens": SHORT}, 0) as response:
            while b'"content":"T' not in response.readline():
                pass
            response.read()

    def _answer(self, number: int, most: int | None) -> None:
        with self._open({} if most is None else {"max_tokens": most}, number) as response:
            if not json.load(response)["choices"]:
                raise ReweighError("the server gave no answer")

    @contextmanager
    def _open(self, options: dict[str, Any], number: int) -> Iterator[http.client.HTTPResponse]:
        picture = {"url": self._pictures[number % len(self._pictures)]}
        parts = [{"type": "image_url", "image_url": picture}, {"type": "text", "text": DESCRIBE}]
        body = {"model": "world", "messages": [{"role": "user", "content": parts}], **options}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        try:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            if response.status != 200:
                raise ReweighError(f"the server answered with {response.status}: {response.read(500)!r}")
            yield response
        finally:
            connection.close()


@contextmanager
def _running(model: Any, processor: Any, *, keep: bool) -> Iterator[_Client]:
    """A server on a free port, with or without a memory of pictures."""
    import uvicorn

    from reweigh.serve.app import Server
    from reweigh.serve.served import Served
    from reweigh.world import table_path

    cache = Memory() if keep else Memory(0)
    served = Served(model, processor, name="world", table=table_path(), cache=cache)
    runner = uvicorn.Server(uvicorn.Config(Server(served).app(), port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    while not runner.started and thread.is_alive():
        time.sleep(0.01)
    if not runner.started:
        raise ReweighError("the server did not start")
    try:
        yield _Client(runner.servers[0].sockets[0].getsockname()[1])
    finally:
        runner.should_exit = True
        thread.join()


def _picture(number: int) -> str:
    from reweigh.world.scenes import scene

    kept = BytesIO()
    scene("evaluation", number).image().save(kept, "PNG")
    return "data:image/png;base64," + base64.b64encode(kept.getvalue()).decode()
