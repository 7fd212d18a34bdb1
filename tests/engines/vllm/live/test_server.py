"""The OpenAI server with an engine process and two tensor-parallel workers: everything crosses processes."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import OFF, V2, section

TOKENS = 30

pytestmark = pytest.mark.skipif(
    V2, reason="two workers on the interpreter take minutes; V1 crosses the same processes"
)


@pytest.fixture(scope="module")
def server(world, tmp_path_factory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = {
        "model": world.checkpoint,
        "served-model-name": "world",
        "host": "127.0.0.1",
        "port": port,
        "dtype": "float32",
        "max-model-len": 256,
        "max-num-seqs": 8,
        "tensor-parallel-size": 2,
        "mm-processor-kwargs": json.dumps({"use_fast": False}),
        "additional-config": json.dumps({"reweigh": section(world)}),
    }
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    log = tmp_path_factory.mktemp("server") / "log"
    environment = {
        **os.environ,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0|1",
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager", *words],
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


def wait_for(address, process, log):
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


def ask(address, world, case, xargs, **more):
    buffer = io.BytesIO()
    world.pictures[case].save(buffer, "PNG")
    picture = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    content = [
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "text", "text": "Please describe this image in detail."},
    ]
    body = {
        "model": "world",
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": TOKENS,
        "return_token_ids": True,
        **({} if xargs is None else {"vllm_xargs": xargs}),
        **more,
    }
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        if more.get("stream"):
            return [json.loads(line[6:]) for line in answer if line.startswith(b"data: {")]
        return json.load(answer)


def test_concurrent_chats_get_the_transformers_engine_s_tokens(server, world):
    kinds = {"plain": OFF, "edited": None, "half": {"reweigh_beta": world.beta / 2}}
    asked = [(case, kind) for case in range(4) for kind in kinds]
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda one: ask(server, world, one[0], kinds[one[1]]), asked))
    for (case, kind), answer in zip(asked, answers, strict=True):
        assert answer["prompt_token_ids"] == world.cases[case]["prompt_ids"]
        assert answer["choices"][0]["token_ids"] == world.cases[case][kind][:TOKENS], (case, kind)
        said = (answer["kv_transfer_params"] or {}).get("reweigh")
        assert (said is None) if kind == "plain" else said["edited"]


@pytest.mark.parametrize(("kind", "asked"), [("edited", None), ("plain", OFF)])
def test_a_streamed_chat_says_whether_it_was_edited(server, world, kind, asked):
    chunks = ask(server, world, 1, asked, stream=True)
    tokens = [
        token for chunk in chunks for choice in chunk["choices"] for token in choice.get("token_ids") or []
    ]
    assert tokens == world.cases[1][kind][:TOKENS]
    said = [chunk["kv_transfer_params"]["reweigh"] for chunk in chunks if "kv_transfer_params" in chunk]
    assert [one["edited"] for one in said] == ([True] if kind == "edited" else [])


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"reweigh_beta": -1.0}, "beta"),
        ({"reweigh_beta": "much"}, "beta"),
        ({"reweigh_beta": "nan"}, "beta"),
        ({"reweigh_beta": 1e39}, "beta"),
        ({"reweigh": "perhaps"}, "perhaps"),
        ({"reweigh_bta": 1.0}, "reweigh_bta"),
    ],
)
def test_nonsense_is_a_bad_request(server, world, asked, reason):
    with pytest.raises(urllib.error.HTTPError) as failed:
        ask(server, world, 0, asked)
    assert failed.value.code == 400
    assert reason in failed.value.read().decode()


def test_metrics_count_what_was_edited(server, world):
    before = count(server, "vllm:reweigh_requests_total")
    ask(server, world, 0, None)
    assert count(server, "vllm:reweigh_requests_total") == before + 1


def count(address, name):
    text = urllib.request.urlopen(f"{address}/metrics", timeout=60).read().decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))
