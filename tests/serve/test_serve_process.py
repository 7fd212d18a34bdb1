"""``reweigh serve`` as a process: it starts with no arguments, a stop finishes streams, a kill leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import openai
import pytest
from live import picture, user

from reweigh.serve.bounds import require_extra
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import record_point
from reweigh.world import table_path

ASKED = {"model": "reweigh-world", "messages": [user(picture(0))]}


@contextmanager
def process(*arguments, said=None, **environment):
    """The command on a free port, once it says where it is; ``said`` gets the lines until then."""
    started = subprocess.Popen(
        [sys.executable, "-m", "reweigh", "serve", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        for line in started.stderr:
            if said is not None:
                said.append(line)
            if found := re.search(r"(\S+) at (http://\S+)", line):
                yield started, found.group(2)
                break
        else:
            raise AssertionError("it never said where it is")
    finally:
        started.kill()
        started.communicate()


def with_beta(folder, beta):
    """Record another operating point in a table."""
    record_point(folder, OperatingPoint(2, beta, "tuned", 300))


@pytest.mark.slow
def test_the_log_of_a_server_and_a_new_table_without_a_restart(tmp_path):
    folder = tmp_path / "table"
    shutil.copytree(table_path(), folder)
    command = ["--json", "--table", str(folder), "--limit", "seconds=60"]
    with process(*command, said=(lines := [])) as (started, url):
        told = [json.loads(line) for line in lines]
        assert (
            told[-1] | {"model": "reweigh-world", "layer": 2, "beta": 3.5, "table": str(folder)} == told[-1]
        )

        def ask():
            answer = httpx.post(f"{url}/v1/chat/completions", json=ASKED | {"max_tokens": 3}, timeout=60)
            return answer.headers["x-reweigh"]

        def next_line(word):
            return next(told for line in started.stderr if word in (told := json.loads(line))["message"])

        assert "beta=3.5" in ask()
        with_beta(folder, 1.3)
        started.send_signal(signal.SIGHUP)
        assert next_line("reloaded")["beta"] == 1.3
        assert "beta=1.3;" in ask()
        assert 'beta="1.3"' in httpx.get(f"{url}/metrics").text
        assert httpx.get(f"{url}/inspect/facts", timeout=60).json()["reweigh"]["beta"] == 1.3
        (folder / "layer-2.safetensors").write_text("{")
        started.send_signal(signal.SIGHUP)
        assert "stays in use" in next_line("not be reloaded")["message"]
        assert "beta=1.3;" in ask()
        httpx.get(f"{url}/no/such%0Apath?secret=1")
        assert next_line("GET /no")["message"] == "GET /no/such%0Apath 404"
        started.send_signal(signal.SIGTERM)
        last = next_line("stopped")
        assert last["answers"] == 3
        assert last["requests"] == 6


def client(url, key="none"):
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


@pytest.mark.slow
def test_a_stop_finishes_streams_and_a_kill_needs_no_repair():
    with process(REWEIGH_API_KEY="s3cret") as (started, url):
        with pytest.raises(openai.AuthenticationError):
            client(url).models.list()
        assert httpx.get(f"{url}/health", headers={"Host": "evil.example"}).status_code == 403
        asking = client(url, "s3cret")
        whole = asking.chat.completions.create(**ASKED).choices[0].message.content
        text = ""
        for place, chunk in enumerate(asking.chat.completions.create(**ASKED, stream=True)):
            if place == 3:
                started.send_signal(signal.SIGTERM)
            text += chunk.choices[0].delta.content or ""
        assert text == whole
        assert started.wait(60) in (0, -signal.SIGTERM)
        lines = started.stderr.read().splitlines()
        assert sum("POST /v1/chat/completions 200" in line for line in lines) == 2
        assert not any("Traceback" in line or "s3cret" in line for line in lines)
    with process("--limit", "batch=1") as (started, url):
        # one answer after the other: most are still to come when the first word is here
        stream = iter(client(url).chat.completions.create(**ASKED, n=16, stream=True))
        next(stream)
        started.kill()
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            list(stream)
    with process() as (_, url):
        assert client(url).chat.completions.create(**ASKED).choices[0].message.content == whole


@pytest.mark.slow
def test_nothing_is_logged_after_the_last_line():
    """Also where a second stop ends the answers in progress."""
    with process("--limit", "batch=1") as (started, url):
        stream = iter(client(url).chat.completions.create(**ASKED, n=16, stream=True))
        next(stream)
        for _ in range(2):
            started.send_signal(signal.SIGINT)
            time.sleep(0.2)
        with contextlib.suppress(openai.APIError, httpx.HTTPError):
            list(stream)
        lines = started.stderr.read().splitlines()
        assert " stopped " in lines[-1], lines
        assert any("POST /v1/chat/completions" in line for line in lines[:-1])


def test_a_missing_extra_is_named(monkeypatch):
    from reweigh.errors import MissingExtraError

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError) as error:
        require_extra()
    assert "[serve]" in str(error.value)


def test_a_taken_address_is_reported_before_a_model_is_loaded():
    from reweigh.errors import InputError
    from reweigh.serve.bounds import listen

    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}") as error:
            listen("127.0.0.1", port)
        assert "--port 0" in str(error.value)
    with pytest.raises(InputError, match=r"192\.0\.2\.1"):
        listen("192.0.2.1", 0)


def test_a_folders_name_is_not_told(checkpoint, monkeypatch):
    """A local checkpoint is served under its family's name."""
    from typer.testing import CliRunner

    from reweigh.cli.app import app

    found = []
    monkeypatch.setattr("reweigh.serve.run.run", lambda server, *_, **__: found.append(server.served))
    folder = checkpoint("llava")
    done = CliRunner().invoke(app, ["serve", str(folder), "--port", "0", "--model-option", "device=cpu"])
    assert done.exception is None, done.exception
    (served,) = found
    assert served.name == "llava"
    assert str(folder) in served.hidden
    assert "table" in served.reason


def test_a_table_in_a_folder_called_table_garbles_no_message(world, tmp_path, monkeypatch):
    from reweigh.errors import InputError
    from reweigh.serve.problem import problem_of
    from reweigh.serve.served import Served

    monkeypatch.chdir(tmp_path)
    shutil.copytree(table_path(), "table")
    served = Served(world.model, world.processor, name="world", table="table")
    with pytest.raises(InputError) as error:
        served.reweigh(layer=0)
    assert problem_of(error.value, served.hidden).message.startswith("the table has no layer 0 ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_listening_beyond_this_machine_needs_a_key(host, monkeypatch):
    from typer.testing import CliRunner

    from reweigh.cli.app import app
    from reweigh.errors import InputError

    monkeypatch.delenv("REWEIGH_API_KEY", raising=False)
    done = CliRunner().invoke(app, ["serve", "world", "--host", host, "--port", "0"])
    assert isinstance(done.exception, InputError)
    assert "REWEIGH_API_KEY" in str(done.exception)


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.2", True), ("localhost", True), ("::1", True), ("::", False)]
)
def test_loopback(host, own):
    from reweigh.serve.bounds import is_loopback

    assert is_loopback(host) is own
