"""The Dockerfile, the systemd unit and the settings file, as far as they can be tried without a container engine."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from live import Running, picture, user
from typer.testing import CliRunner

from reweigh.errors import InputError
from reweigh.serve.bounds import Bounds

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {
    *("ARG", "FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD")
}


def instructions():
    """The Dockerfile's instructions in order, as (name, rest)."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def of_kind(name):
    return [rest for kind, rest in instructions() if kind == name]


def copied():
    """What the image is built from."""
    return [source for rest in of_kind("COPY") for source in rest.split()[:-1]]


def test_the_dockerfile_is_well_formed():
    kinds = [kind for kind, _ in instructions()]
    assert set(kinds) <= INSTRUCTIONS
    assert kinds[:2] == ["ARG", "FROM"]
    assert of_kind("ARG")[0].startswith("BASE=python:3.12")
    assert re.search(r"^# ARG BASE=\S*cuda", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert kinds.count("ENTRYPOINT") == kinds.count("CMD") == kinds.count("HEALTHCHECK") == 1
    assert kinds.index("USER") > max(place for place, kind in enumerate(kinds) if kind == "RUN")
    for script in of_kind("RUN"):
        subprocess.run(["sh", "-n", "-c", script], check=True)
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert [f"!{source}" in kept for source in copied()] == [True] * len(copied())
    assert all((ROOT / source).exists() for source in copied())


def test_the_image_runs_the_command_on_its_port(monkeypatch):
    from reweigh.cli.app import app

    _, *arguments = json.loads(of_kind("ENTRYPOINT")[0])
    monkeypatch.delenv("REWEIGH_API_KEY", raising=False)
    done = CliRunner().invoke(app, [*arguments, *json.loads(of_kind("CMD")[0])])
    assert "REWEIGH_API_KEY" in str(done.exception), "a container is reached by others: it needs a key"
    assert of_kind("EXPOSE") == ["8377"]


def test_the_images_health_check(house: Running):
    check = json.loads(of_kind("HEALTHCHECK")[0].partition("CMD ")[2])
    assert ":8377/" in check[-1]
    port = house.url.rpartition(":")[2]

    def status(target):
        return subprocess.run(
            [sys.executable, *check[1:-1], check[-1].replace("8377", target)], capture_output=True
        ).returncode

    assert status(port) == 0
    assert status("1") != 0


@pytest.mark.slow
def test_the_images_installation(tmp_path):
    """The step that installs, on the copied files alone, in a venv that already sees the dependencies."""
    for source in copied():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, tmp_path / source)
    installs = [script for script in of_kind("RUN") if "pip install" in script]
    assert len(installs) == 1
    make, install = installs[0].split(" && ")
    venv = tmp_path / "opt"
    make = make.replace("/opt/reweigh", str(venv)).replace("python3", shlex.quote(sys.executable))
    subprocess.run(make, shell=True, check=True, cwd=tmp_path)
    found = next(venv.glob("lib/python*/site-packages"))
    (found / "outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    done = subprocess.run(
        install.replace("/opt/reweigh", str(venv)), shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    if "hatchling" in done.stderr and done.returncode:
        pytest.skip("the build backend cannot be downloaded here")
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [str(venv / "bin/python"), "-c", "import reweigh; print(reweigh.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )
    assert shown.stdout.startswith(str(venv))
    subprocess.run(
        [str(venv / "bin/reweigh"), "serve", "--help"],
        check=True,
        capture_output=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )


def test_the_unit(tmp_path):
    text = (ROOT / "deploy/reweigh.service").read_text()
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    assert unit["Service"]["ExecReload"].split()[1] == "-HUP"
    assert unit["Service"]["ExecStart"].split()[1:] == ["serve", "--config", "/etc/reweigh/serve.toml"]
    from reweigh.serve.run import GRACE_SECONDS

    assert int(unit["Service"]["TimeoutStopSec"]) > GRACE_SECONDS
    if shutil.which("systemd-analyze") is None:
        return
    start = unit["Service"]["ExecStart"].split()[0]
    (tmp_path / "reweigh.service").write_text(text.replace(start, "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "reweigh.service")], capture_output=True, text=True
    )
    assert "reweigh.service" not in checked.stderr, checked.stderr


def nginx(folder, port, behind):
    """Nginx with our configuration, but for the certificate and the ports."""
    text = (ROOT / "deploy/nginx.conf").read_text()
    text = re.sub(r" *ssl_certificate.*\n", "", text).replace("443 ssl", f"127.0.0.1:{port}")
    logs = f"access_log off; error_log {folder}/error.log;"
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; events {{}} http {{ {logs} {text.replace('8377', str(behind))} }}"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", f"{folder}/error.log"]


def caddy(folder, port, behind):
    """Caddy with our configuration, but for the certificate and the ports."""
    text = (ROOT / "deploy/Caddyfile").read_text().replace("\tservers {", "\tadmin off\n\tservers {")
    text = text.replace("describe.example.org {", f"http://describe.example.org:{port} {{")
    (folder / "Caddyfile").write_text(text.replace("8377", str(behind)))
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_the_page_shows_the_configurations_that_were_tried(name):
    assert (ROOT / "deploy" / name).read_text().strip() in (ROOT / "docs/serve.md").read_text()


def test_the_page_has_every_limit_with_its_default():
    table = (ROOT / "docs/serve.md").read_text().partition("## Limits")[2].partition("## Memory")[0]
    missing = [name for name in asdict(Bounds()) if f"`{name}`" not in table]
    assert missing == []


@pytest.mark.parametrize("proxy", [nginx, caddy])
def test_a_proxy_with_our_configuration(proxy, tmp_path, serving):
    if shutil.which(proxy.__name__) is None:
        pytest.skip(f"{proxy.__name__} is not installed (apt-get install {proxy.__name__})")
    behind = serving(hosts=["describe.example.org"])
    clients = []
    receiving = behind.server.scheduler.receiving
    behind.server.scheduler.receiving = lambda client: clients.append(client) or receiving(client)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = proxy(tmp_path, port, behind.url.rpartition(":")[2])
    with open(tmp_path / "said", "w") as said:
        running = subprocess.Popen(
            command, stdout=said, stderr=said, env={**os.environ, "HOME": str(tmp_path)}
        )
    try:
        url, headers = f"http://127.0.0.1:{port}", {"Host": f"describe.example.org:{port}"}
        for _ in range(300):
            with contextlib.suppress(httpx.ConnectError):
                if httpx.get(f"{url}/health", headers=headers).status_code == 200:
                    break
            time.sleep(0.1)
        asked = {"model": "reweigh-world", "messages": [user(picture(0))], "max_tokens": 5}
        origin = {**headers, "Origin": f"http://describe.example.org:{port}"}
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=60) as other:
            answer = other.post(f"{url}/v1/chat/completions", json=asked, headers=origin)
        assert answer.status_code == 200, answer.text
        assert clients == ["127.0.0.2"]
        with httpx.stream(
            "POST", f"{url}/v1/chat/completions", json=asked | {"stream": True}, headers=headers
        ) as stream:
            assert [line for line in stream.iter_lines() if line][-1] == "data: [DONE]"
        large = httpx.post(f"{url}/v1/chat/completions", content=b" " * (9 << 20), headers=headers)
        # a proxy that is still sending when the connection closes says 502
        assert large.status_code in (400, 413, 502)
    finally:
        running.terminate()
        running.wait(60)


def invoke(tmp_path, text, *arguments):
    """Start the server with a settings file; what the command calls to run it is replaced by the caller."""
    from reweigh.cli.app import app

    path = tmp_path / "serve.toml"
    path.write_text(text)
    return CliRunner().invoke(app, ["serve", "--config", str(path), *arguments])


@pytest.fixture
def started(monkeypatch, world):
    """What the command would have run."""
    found = {}
    monkeypatch.setattr("reweigh.cli.common.table_of", lambda model, table, layer=None: table)
    monkeypatch.setattr(
        "reweigh.cli.common.Loading.load", lambda _, model: (found.update(model=model), world.processor)
    )
    monkeypatch.setattr("reweigh.cli.serve._name", lambda *_: "it")
    monkeypatch.setattr("reweigh.serve.served.Served", lambda *_, **given: found.update(given) or world)
    monkeypatch.setattr(
        "reweigh.serve.run.run", lambda server, taken, **given: found.update(given, server=server)
    )
    return found


def test_settings_come_from_the_file_and_the_command_line_wins(tmp_path, monkeypatch, started):
    monkeypatch.setenv("REWEIGH_API_KEY", "k")
    text = (ROOT / "deploy/serve.toml").read_text()
    assert text.partition("\n")[2] in (ROOT / "docs/serve.md").read_text()
    monkeypatch.setattr("reweigh.serve.bounds.listen", lambda host, port: contextlib.nullcontext())
    done = invoke(
        tmp_path,
        text.replace('table = "/etc/reweigh/table"\n', ""),
        "--host",
        "127.0.0.1",
        "--limit",
        "queue=7",
    )
    assert done.exception is None, done.exception
    asked = tomllib.loads(text)
    bounds = started["server"].bounds
    assert started["model"] == asked["model"]
    assert started["json"] is True
    assert started["host"] == "127.0.0.1"
    assert (bounds.queue, bounds.seconds, bounds.new_tokens) == (7, 120, 512)
    assert "describe.example.org" in started["server"]._hosts


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("prot = 1", "did you mean port"),
        ("port = 1.5", "whole number"),
        ("port = true", "whole number"),
        ("host = 1", "string"),
        ('without-key = "yes"', "true or false"),
        ("allowed-host = [1]", "string"),
        ("[limit]\nqeue = 1", "did you mean queue"),
        ("[limit]\nqueue = 1.5", "whole number"),
        ("limit = 1", "table"),
        ("port = ", "TOML"),
        ('json = "yes"', "true or false"),
    ],
)
def test_a_wrong_setting_is_reported(tmp_path, started, text, word):
    done = invoke(tmp_path, text)
    assert isinstance(done.exception, InputError), done.output
    assert word in str(done.exception)


def test_a_missing_file_is_reported(started):
    from reweigh.cli.app import app

    done = CliRunner().invoke(app, ["serve", "--config", "no/such.toml"])
    assert isinstance(done.exception, InputError)
    assert "no/such.toml" in str(done.exception)
