"""A server that runs in a thread of the test, pictures of the embedded world, and clients."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import openai
import uvicorn

from reweigh.serve.app import Server
from reweigh.serve.run import settings
from reweigh.world.scenes import scene

DESCRIBE = "Please describe this image in detail."


def picture(number: int) -> Any:
    """A scene of the embedded world."""
    return scene("evaluation", number).image()


def data_url(image: Any) -> str:
    kept = BytesIO()
    image.save(kept, "PNG")
    return "data:image/png;base64," + base64.b64encode(kept.getvalue()).decode()


def user(*pictures: Any, text: str = DESCRIBE) -> dict[str, Any]:
    """A user's turn with pictures."""
    shown = [{"type": "image_url", "image_url": {"url": data_url(one)}} for one in pictures]
    return {"role": "user", "content": [*shown, {"type": "text", "text": text}]}


class Running:
    """A server that answers on a port of this machine."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{port}"

    def client(self, **options: Any) -> openai.OpenAI:
        given = {"api_key": "none", "max_retries": 0, **options}
        return openai.OpenAI(base_url=f"{self.url}/v1", **given)

    def client_async(self, **options: Any) -> openai.AsyncOpenAI:
        given = {"api_key": "none", "max_retries": 0, **options}
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", **given)


@contextmanager
def running(server: Server) -> Iterator[Running]:
    """Serve in another thread until the block ends."""
    runner = uvicorn.Server(settings(server))
    thread = threading.Thread(target=runner.run)
    thread.start()
    while not runner.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield Running(server, runner.servers[0].sockets[0].getsockname()[1])
    finally:
        runner.should_exit = True
        thread.join()
