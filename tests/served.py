"""A real `transformers serve` process on a port of this machine, and a small text model for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
WORLD_DECISIONS = {
    "labels": {"noul": [" Yes", " No"]},
    "chat_template": "{{ bos_token }}USER: {% for image in images %}<image>\n{% endfor %}"
    "{{ question.instructions }} ASSISTANT:",
}
"""The embedded model answers to its own prompt only, and begins a word with a blank."""
STARTING = 300.0


@dataclass(frozen=True)
class Served:
    """A server that answers."""

    model: str
    url: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()


def text_model(folder: Path) -> Path:
    """A random Llama of four blocks over bytes and a few merges, saved with its tokenizer and a chat template."""
    import torch
    import transformers as hf

    from checkpoints.families import ids, llama_tokens, text
    from checkpoints.noise import perturb

    tokens = llama_tokens(extra=())
    tokens.chat_template = TEMPLATE
    config = hf.LlamaConfig(**{k: v for k, v in text("llama", **ids(tokens)).items() if k != "model_type"})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = hf.LlamaForCausalLM(config)
    perturb(model, seed=1)
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


def world_settings(folder: Path) -> tuple[str, ...]:
    """Options with which the served embedded model answers as the loaded one does."""
    (folder / "decisions.json").write_text(json.dumps(WORLD_DECISIONS))
    return "--dtype", "float32", "--decision-config", str(folder / "decisions.json")


@contextmanager
def serving(model: str | Path, *options: str, cwd: Path | None = None) -> Iterator[Served]:
    """Serve a model until the block ends; skips where this installation cannot serve."""
    for name in ("fastapi", "uvicorn", "pydantic", "openai", "accelerate"):
        pytest.importorskip(name, reason="transformers serve needs it")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    # a file, since a pipe that nobody reads fills up and stops the server
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, cwd=cwd, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            _await(process, f"http://127.0.0.1:{port}/health", log)
            yield Served(str(model), f"http://127.0.0.1:{port}/v1", process)
        finally:
            process.kill()


def _await(process: subprocess.Popen[bytes], address: str, log: IO[bytes]) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        if process.poll() is not None:
            log.seek(0)
            pytest.fail(f"transformers serve ended: {log.read().decode(errors='replace')[-2000:]}")
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                if json.load(answer)["status"] == "ok":
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    pytest.skip(f"transformers serve did not start within {STARTING:.0f} s")
