"""Fetching images by URL: what the pattern allows, public addresses only, redirects checked, bytes and time bounded."""

from __future__ import annotations

import asyncio
import queue
import shutil
import ssl
import subprocess
import time

import pytest

from local_server import LocalServer, QuietHandler
from reweigh.errors import InputError
from reweigh.serve.fetch import Fetcher, is_public_address
from reweigh.serve.problem import Problem

IMAGE = b"bytes of an image"


ENDS = queue.SimpleQueue()
"""How each dripping reply ended."""


@pytest.fixture(scope="module")
def site():
    """A site on this machine; the address it is called by is up to the test."""

    class Handler(QuietHandler):
        def do_GET(self):
            self.close_connection = True
            if self.path.startswith("/to?"):
                self.send_response(302)
                self.send_header("Location", self.path[4:])
                self.end_headers()
            elif self.path == "/slow":
                self.send_response(200)
                self.end_headers()
                for _ in range(20):
                    try:
                        self.wfile.write(b"x")
                        self.wfile.flush()
                    except OSError:
                        return
                    time.sleep(0.1)
            elif self.path.startswith("/drip"):
                line = (
                    b"HTTP/1.1 200 OK\r\nX-"
                    if self.path == "/drip-head"
                    else (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;")
                )
                try:
                    self.wfile.write(line)
                    for _ in range(300):
                        self.wfile.write(b"x")
                        self.wfile.flush()
                        time.sleep(0.1)
                    ENDS.put("dripped to its end")
                except OSError:
                    ENDS.put("left by its client")
            elif self.path == "/image":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(IMAGE)
            else:
                self.send_error(404)

    with LocalServer(Handler) as server:
        yield server.address.rpartition(":")[2]


def fetcher(pattern=r"http://(public|other|inside)\.example:\d+/.*", **options):
    """Public names lead to this machine; "inside" is one whose address is not public."""
    seen = []

    async def resolve(host, port):
        seen.append(host)
        return ["127.0.0.2"] if host == "inside.example" else ["127.0.0.1"]

    given = {"most": 1000, "seconds": 5.0, **options}
    made = Fetcher(pattern, resolve=resolve, is_public=lambda address: address == "127.0.0.1", **given)
    return made, seen


def fetch(made, url, hold=lambda size: None):
    return asyncio.run(made.fetch(url, "url", hold))


def refused(made, url, **options):
    with pytest.raises(Problem) as error:
        fetch(made, url, **options)
    assert error.value.param == "url"
    return error.value


def test_what_the_pattern_allows_is_fetched(site):
    made, _ = fetcher()
    assert fetch(made, f"http://public.example:{site}/image") == IMAGE
    there = f"http://public.example:{site}/to?http://other.example:{site}/image"
    assert fetch(made, there) == IMAGE
    assert fetch(made, f"http://public.example:{site}/to?/image") == IMAGE


@pytest.mark.parametrize(
    "url",
    [
        "http://private.example:80/image",
        "https://public.example:80/image",
        "file:///etc/passwd",
        "ftp://public.example:80/image",
        "http://user:word@public.example:80/image",
        "http://public.example:99999/image",
        "http://public.example:80/image\n",
        "gopher",
        "",
    ],
)
def test_anything_else_is_not_even_looked_up(url):
    made, seen = fetcher()
    assert refused(made, url).status == 400
    assert seen == []


def test_addresses_that_are_not_public_are_refused(site):
    made, _ = fetcher()
    assert "public addresses" in refused(made, f"http://inside.example:{site}/image").message
    led = refused(made, f"http://public.example:{site}/to?http://inside.example:{site}/image")
    assert "public addresses" in led.message
    away = refused(made, f"http://public.example:{site}/to?http://127.0.0.1:{site}/image")
    assert away.code == "url_not_allowed"

    async def both(host, port):
        return ["93.184.216.34", "10.0.0.1"]

    mixed = Fetcher(".*", most=9, resolve=both)
    assert "public addresses" in refused(mixed, "http://mixed.example/image").message


def test_bytes_time_and_redirects_are_bounded(site):
    small, _ = fetcher(most=5)
    assert refused(small, f"http://public.example:{site}/image").status == 413
    hasty, _ = fetcher(seconds=0.3)
    assert refused(hasty, f"http://public.example:{site}/slow").code == "image_not_fetched"
    made, _ = fetcher()
    loop = f"http://public.example:{site}/to?"
    assert "redirects" in refused(made, loop + loop + loop + loop + loop).message
    assert "404" in refused(made, f"http://public.example:{site}/gone").message
    assert refused(made, "http://public.example:1/closed").code == "image_not_fetched"


def test_fetched_bytes_count_as_those_of_bodies_do(site):
    """The server bounds what all arriving requests hold in memory."""
    made, _ = fetcher()
    held = []
    fetch(made, f"http://public.example:{site}/image", held.append)
    assert sum(held) == len(IMAGE)

    def refuse(size):
        raise Problem(429, "full", code="queue_full", param="url")

    assert refused(made, f"http://public.example:{site}/image", hold=refuse).status == 429


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example", "xn--"])
def test_a_host_that_is_no_name_is_not_fetched_from(host):
    made = Fetcher(r"https?://.*", most=1000)  # looks names up itself
    assert refused(made, f"http://{host}/image").code == "image_not_fetched"


def test_a_name_that_takes_long_to_look_up_does_not_outlast_the_deadline():
    async def never(host, port):
        await asyncio.Event().wait()

    hasty = Fetcher(".*", most=9, seconds=0.05, resolve=never)
    assert refused(hasty, "http://slow.example/image").code == "image_not_fetched"


@pytest.mark.parametrize("path", ["/drip-head", "/drip-chunk"])
def test_dripping_bytes_do_not_outlast_the_deadline(site, path):
    hasty, _ = fetcher(seconds=0.5)
    assert refused(hasty, f"http://public.example:{site}{path}").code == "image_not_fetched"
    assert ENDS.get(timeout=120) == "left by its client"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_must_be_that_of_the_name(tmp_path):
    """The connection goes to an address that was checked; the certificate is held against the name all the same."""
    key, made = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    command += f" -addext subjectAltName=DNS:public.example -keyout {key} -out {made}"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)

    class Handler(QuietHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.headers["Host"].encode())

    with LocalServer(Handler, context) as server:
        port = server.address.rpartition(":")[2]
        trusting, _ = fetcher(r"https://\w+\.example:\d+/")
        assert refused(trusting, f"https://public.example:{port}/").code == "image_not_fetched"
        trusting._certificates.load_verify_locations(made)
        host = f"public.example:{port}"
        assert fetch(trusting, f"https://{host}/") == host.encode()
        assert refused(trusting, f"https://other.example:{port}/").code == "image_not_fetched"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("::127.0.0.1", False),
        ("fec0::1", False),
        ("64:ff9b:1::7f00:1", False),
        ("5f00::1", False),
        ("3fff::1", False),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
        ("ff02::1", False),
        ("no address", False),
    ],
)
def test_which_addresses_are_public(address, public):
    assert is_public_address(address) is public


def test_a_pattern_must_be_one():
    with pytest.raises(InputError, match="regular expression"):
        Fetcher("(", most=1)
