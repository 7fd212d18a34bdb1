"""vLLM's HTTP server in a process of its own, and a client for it."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import Reference, section

QUESTION = "Please describe this image in detail."
API_SERVER = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager")


def options_of(reference: Reference, reweigh: dict[str, Any] | None, more: dict[str, Any]) -> list[str]:
    """Command-line options of a server on a small machine."""
    options = {
        "model": reference.checkpoint,
        "served-model-name": "world",
        "dtype": "float32",
        "max-model-len": 256,
        "max-num-seqs": 8,
        "mm-processor-kwargs": json.dumps({"use_fast": False}),
        "additional-config": json.dumps({"reweigh": {**section(reference), **(reweigh or {})}}),
        **more,
    }
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


@contextmanager
def serving(command: Sequence[str], folder: Path, *, threads: str = "0|1") -> Iterator[str]:
    """A server on this machine only, by its address, until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "log"
    environment = {
        **os.environ,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_CPU_OMP_THREADS_BIND": threads,
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, process, log)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def wait_for(address: str, process: Any, log: Path) -> None:
    """Until the server answers; its log is shown if it ends instead."""
    for _ in range(900):
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
        except OSError:
            time.sleep(1)
        else:
            return
    raise AssertionError(log.read_text(errors="replace")[-4000:])


def png(reference: Reference, case: int) -> str:
    buffer = io.BytesIO()
    reference.pictures[case].save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def post(url: str, body: Any = None, key: str | None = None) -> Any:
    headers = {
        "Content-Type": "application/json",
        **({} if key is None else {"Authorization": f"Bearer {key}"}),
    }
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return urllib.request.urlopen(request, timeout=600)


def ask(
    address: str,
    reference: Reference,
    case: int,
    xargs: dict[str, Any] | None,
    *,
    key: str | None = None,
    model: str = "world",
    **more: Any,
) -> Any:
    """A chat about a picture; a streamed one as its chunks."""
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(reference, case)}"}},
        {"type": "text", "text": QUESTION},
    ]
    body = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 30,
        "return_token_ids": True,
        **({} if xargs is None else {"vllm_xargs": xargs}),
        **more,
    }
    with post(f"{address}/v1/chat/completions", body, key) as answer:
        if more.get("stream"):
            return [json.loads(line[6:]) for line in answer if line.startswith(b"data: {")]
        return json.load(answer)
