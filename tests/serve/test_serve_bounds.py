"""What a server refuses, with which status and body; what it never tells."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import openai
import pytest
from live import data_url, picture, user

from reweigh.errors import InputError
from reweigh.families.processor import resized_pixels
from reweigh.serve.bounds import Bounds
from reweigh.serve.monitor import TextLines
from reweigh.serve.prepare import open_pictures
from reweigh.serve.problem import Problem, problem_of
from reweigh.serve.wire import Message

MODEL = "reweigh-world"


def body(*pictures, **changes):
    return {"model": MODEL, "messages": [user(*pictures)], "max_tokens": 2, **changes}


def post(running, content, **options):
    return httpx.post(f"{running.url}/v1/chat/completions", json=content, timeout=60, **options)


def test_bytes_and_pixels_are_bounded(serving):
    small = serving(Bounds(image_pixels=10_000, images=2))
    flat = picture(0).resize((101, 100)).convert("P", palette=1, colors=2)
    answer = post(small, body(flat))
    assert answer.status_code == 422
    assert "megapixels" in answer.json()["error"]["message"]
    tiny = picture(0).resize((16, 16))
    assert post(small, body(tiny, tiny)).status_code == 200
    answer = post(small, body(tiny, tiny, tiny))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_images")


def test_pixels_of_one_request_are_bounded_together_before_any_is_decoded(serving, monkeypatch):
    monkeypatch.setattr("reweigh.serve.app.read_pictures", lambda *_: pytest.fail("a picture was decoded"))
    small = serving(Bounds(image_pixels=20_000))
    tiny = user(*[picture(0).resize((8, 8))] * 2)
    for part in tiny["content"][:2]:
        part["image_url"]["min_pixels"] = 12_000
    for turn in (user(picture(0), picture(1)), tiny):  # 12,544 pixels each
        answer = post(small, body(messages=[turn]))
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "image_too_large")
        assert "together" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("size", "pixels"),
    [
        ({"shortest_edge": 336}, 336 * 33_600),
        ({"shortest_edge": 336, "longest_edge": 1344}, 0),
        ({"height": 336, "width": 336}, 0),
        (None, 0),
    ],
)
def test_pixels_count_as_the_processor_will_enlarge_them(size, pixels):
    """Four thin pictures of 1,600 pixels would be 45 megapixels, of which some processors make gigabytes."""
    processor = SimpleNamespace(image_processor=SimpleNamespace(size=size, do_resize=True))
    assert resized_pixels(processor, (4, 400)) == pixels
    url = {"url": data_url(picture(0).resize((4, 400)))}
    messages = [Message(role="user", content=[{"type": "image_url", "image_url": url}] * 8)]
    found = {f"messages.0.content.{place}.image_url": url["url"] for place in range(8)}
    if pixels:
        with pytest.raises(Problem, match="enlarged") as refused:
            open_pictures(messages, found, Bounds(), processor)
        assert refused.value.status == 422
    else:
        assert {one.pixels for one in open_pictures(messages, found, Bounds(), processor)} == {1600}


def test_large_pictures_make_only_each_other_wait(serving, world, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    real = world.prepare

    def slow(messages, pictures, *arguments, lane):
        if pictures and pictures[0].size == (2048, 2048):
            begun.set()
            go_on.wait(60)
        return real(messages, pictures, *arguments, lane=lane)

    monkeypatch.setattr(world, "prepare", slow)
    running = serving(Bounds(seconds=0.5))
    with ThreadPoolExecutor() as pool:
        large = pool.submit(post, running, body(picture(0).resize((2048, 2048))))
        assert begun.wait(60)
        try:
            assert post(running, body(picture(0))).status_code == 200
            assert "reweigh_preparing_large_pictures 1.0" in httpx.get(f"{running.url}/metrics").text
            assert large.result().status_code == 504
            while (answer := httpx.get(f"{running.url}/health")).status_code == 200:
                time.sleep(0.05)
            assert (answer.status_code, "busy" in answer.json()["status"]) == (503, True)
        finally:
            go_on.set()


def test_the_body_is_bounded_with_and_without_a_stated_length(serving):
    small = serving(Bounds(body_bytes=1000))
    answer = post(small, body(picture(0)))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")

    def pieces():
        yield b"{" + b" " * 600
        yield b" " * 600

    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{small.url}/v1/chat/completions", content=pieces(), headers=headers)
    assert answer.status_code == 413


def test_a_body_that_does_not_come_is_given_up(serving, monkeypatch):
    monkeypatch.setattr("reweigh.serve.wire.BODY_SECONDS", 0.1)
    hasty = serving()
    with socket.create_connection(("127.0.0.1", int(hasty.url.rpartition(":")[2]))) as sock:
        sock.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        assert sock.recv(4096).startswith(b"HTTP/1.1 408")


def test_tokens_are_bounded(serving):
    small = serving(Bounds(new_tokens=5))
    answer = post(small, body(messages=[user(text="word " * 1_100)]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    asked = {"model": MODEL, "messages": [user(text="Hi")]}
    for most, told in ((None, False), (5, False), (6, True), (16384, True)):
        done = post(small, asked | {"max_tokens": most})
        assert done.json()["usage"]["completion_tokens"] <= 5
        assert ("; max_tokens=5" in done.headers["x-reweigh"]) == told


def test_time_is_bounded_before_and_within_a_stream(serving, monkeypatch):
    hasty = serving(Bounds(seconds=0.001))
    assert post(hasty, body(picture(0))).status_code == 504
    slow = serving(Bounds(seconds=0.5))
    settings = slow.server.served.anatomy.language_model.generation_config
    monkeypatch.setattr(settings, "eos_token_id", None)  # it would end by itself
    with pytest.raises(openai.APIError, match="longer"):
        list(slow.client().chat.completions.create(**body(picture(0), max_tokens=900), stream=True))
    slow.server.bounds = Bounds()  # this one may take its time
    assert slow.client().chat.completions.create(**body()).usage.completion_tokens == 2  # the row was freed


def test_a_key_is_asked_for_in_constant_time(serving, monkeypatch):
    import hmac

    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))
    locked = serving(key="secret-key")
    with pytest.raises(openai.AuthenticationError) as error:
        locked.client(api_key="wrong").models.list()
    assert error.value.code == "invalid_api_key"
    assert [model.id for model in locked.client(api_key="secret-key").models.list()] == [MODEL]
    assert compared == [(b"wrong", b"secret-key"), (b"secret-key", b"secret-key")]
    for path, status in (("/health", 200), ("/", 200), ("/metrics", 401), ("/inspect/facts", 401)):
        assert httpx.get(locked.url + path).status_code == status


def test_other_hosts_and_other_sites_are_refused(serving):
    strict = serving(hosts=["proxy.example"])
    assert httpx.get(f"{strict.url}/health", headers={"Host": "Proxy.example:80"}).status_code == 200
    assert httpx.get(f"{strict.url}/health", headers={"Host": "[::1]:80"}).status_code == 200
    assert httpx.get(f"{strict.url}/health", headers={"Host": "evil.example:80"}).status_code == 403
    assert httpx.get(f"{strict.url}/health", headers={"Host": "localhost:1"}).status_code == 200
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        answer = httpx.get(f"{strict.url}/v1/models", headers={"Sec-Fetch-Site": site})
        assert answer.status_code == status
    answer = httpx.post(
        f"{strict.url}/v1/chat/completions",
        content=json.dumps(body()),
        headers={"Content-Type": "text/plain"},
    )
    assert answer.status_code == 400
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert "default-src 'none'" in httpx.get(strict.url).headers["content-security-policy"]


def test_a_page_of_another_origin_changes_nothing(serving):
    strict = serving(hosts=["proxy.example"])
    host = strict.url.removeprefix("http://")
    for origin, name, status in (
        (f"http://{host}", host, 200),
        ("https://Proxy.example", "proxy.example", 200),
        ("http://127.0.0.1", host, 403),
        ("https://evil.example", "proxy.example", 403),
        ("null", host, 403),
    ):
        answer = post(strict, body(), headers={"Origin": origin, "Host": name})
        assert (answer.status_code, "cross_site" in answer.text) == (status, status == 403), origin
    assert httpx.get(f"{strict.url}/v1/models", headers={"Origin": "http://a.example"}).status_code == 200


def test_two_lengths_of_one_body_are_refused_and_the_connection_closed(house):
    sent = json.dumps(body()).encode()
    for path in ("/v1/chat/completions", "/health"):
        with socket.create_connection(("127.0.0.1", int(house.url.rpartition(":")[2])), timeout=60) as sock:
            sock.sendall(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(sent)}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                + b"%x\r\n%b\r\n0\r\n\r\n" % (len(sent), sent)
            )
            found = b""
            while part := sock.recv(65536):  # until the server closes
                found += part
        assert found.startswith(b"HTTP/1.1 400"), found
        assert found.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("key", ["secret\n", " secret", "a b", "schl\u00fcssel", "\t"])
def test_a_key_that_no_client_can_send_is_refused_at_start(key, monkeypatch):
    from typer.testing import CliRunner

    from reweigh.cli.app import app

    monkeypatch.setenv("REWEIGH_API_KEY", key)
    done = CliRunner().invoke(app, ["serve", "world", "--port", "0"])
    assert isinstance(done.exception, InputError)
    assert "white space" in str(done.exception)


def test_texts_are_bounded(house):
    long = "x" * 1_000_000
    for path, asked, param in (
        ("/v1/chat/completions", body(stop=[long]), "stop"),
        ("/v1/chat/completions", body(**{long: 1}), None),
        ("/inspect/check", body(text=long), "text"),
        ("/inspect/heat", body(word=long), "word"),
    ):
        answer = httpx.post(house.url + path, json=asked, timeout=30)
        assert answer.status_code == 400
        assert len(answer.content) < 500
        assert param is None or answer.json()["error"]["param"] == param
    answer = post(house, body(temprature=1))
    assert "temperature" in answer.json()["error"]["message"]


def test_wrong_paths_and_methods_have_openais_bodies(house):
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405)):
        answer = httpx.request(method, house.url + path)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    answer = httpx.post(
        f"{house.url}/v1/chat/completions", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400


def test_the_model_by_its_name_and_by_world(house):
    assert httpx.get(f"{house.url}/v1/models/{MODEL}").json()["id"] == MODEL
    assert httpx.get(f"{house.url}/v1/models/world").json()["id"] == MODEL
    assert httpx.get(f"{house.url}/v1/models/other").status_code == 404
    assert httpx.post(f"{house.url}/v1/nothing", json={}).status_code == 404


def test_an_answer_says_in_a_header_what_was_done(house):
    asked = body(picture(20), max_tokens=60, reweigh={"trace": True})
    edited = post(house, asked)
    traced = edited.json()["choices"][0]["reweigh"]["tokens"]
    changed = sum(one["winner_before"] != one["winner_after"] for one in traced)
    assert changed > 0
    assert [one["replaced"] for one in traced] == [
        one["winner_before"] if one["winner_before"] != one["winner_after"] else None for one in traced
    ]
    assert edited.headers["x-reweigh"] == f"edited; beta=3.5; layer=2; changed={changed}"
    plain = post(house, asked | {"reweigh": {"evidence": True}})
    assert plain.headers["x-reweigh"] == edited.headers["x-reweigh"]
    shown = plain.json()["choices"][0]["reweigh"]["tokens"]
    assert [one["replaced"] for one in shown] == [one["replaced"] for one in traced]
    with httpx.stream(
        "POST", f"{house.url}/v1/chat/completions", json=asked | {"stream": True}, timeout=60
    ) as begun:  # how many will change is not known when a stream begins
        assert begun.headers["x-reweigh"] == "edited; beta=3.5; layer=2"
    off = post(house, body(picture(20), stream=False, reweigh="off"))
    assert off.headers["x-reweigh"] == "unedited; decoder=base"
    base = post(house, body(picture(20), stream=False, reweigh={"decoder": "base"}))
    assert off.json()["choices"] == base.json()["choices"]


def test_health_tells_when_the_model_is_stuck(serving, monkeypatch):
    stuck = serving(Bounds(seconds=0.2))
    assert httpx.get(f"{stuck.url}/health/live").status_code == 200
    assert httpx.get(f"{stuck.url}/health").json() == {"status": "ok"}
    asked = httpx.head(f"{stuck.url}/health")  # as load balancers ask
    assert (asked.status_code, asked.content) == (200, b"")
    monkeypatch.setattr("reweigh.serve.scheduler.Scheduler.busy_seconds", lambda self: 0.3)
    assert [httpx.get(f"{stuck.url}/health{kind}").status_code for kind in ("/live", "/ready")] == [200, 503]
    monkeypatch.setattr("reweigh.serve.scheduler.Scheduler.busy_seconds", lambda self: 0.5)
    assert httpx.get(f"{stuck.url}/health/live").status_code == 503


def test_the_path_of_the_model_is_never_revealed(house, world, caplog):
    told = httpx.get(f"{house.url}/inspect/facts", timeout=60).text
    told += httpx.get(f"{house.url}/v1/models").text
    told += post(house, body(reweigh={"layer": 4})).text
    assert str(world.model.name_or_path) not in told
    assert "checkpoint" not in told
    error = InputError("/secret/model holds no table", hint="look into /secret/model")
    assert "/secret" not in problem_of(error, ["/secret/model", ""]).message
    fault = problem_of(RuntimeError("/secret/model broke"))
    assert (fault.status, "secret" in fault.message) == (500, False)


def test_the_log_has_one_line_and_no_prompt_unless_asked(serving, caplog):
    caplog.set_level("INFO", logger="reweigh.serve")
    words = {"messages": [user(text="a private question")]}
    post(serving(), body() | words)
    lines = [TextLines().format(record) for record in caplog.records if record.name == "reweigh.serve"]
    assert len(lines) == 1
    assert "POST /v1/chat/completions 200 id=req-" in lines[0]
    assert "private" not in lines[0]
    post(serving(log_prompts=True), body() | words)
    assert caplog.records[-1].fields["asked"] == "a private question"


def test_metrics_count_what_happened(serving):
    counted = serving()
    post(counted, body(picture(20), stream=False))
    post(counted, body(picture(20), model="x"))
    text = httpx.get(f"{counted.url}/metrics").text
    assert 'reweigh_requests_total{path="/v1/chat/completions",status="200"} 1' in text
    assert 'reweigh_requests_total{path="/v1/chat/completions",status="404"} 1' in text
    assert 'reweigh_tokens_total{kind="generated"} 2' in text
    assert "reweigh_batch_rows_count 1" in text
    assert 'reweigh_request_seconds_bucket{le="+Inf",path="/v1/chat/completions"} 2' in text
    assert 'reweigh_answers_total{decoder="reweigh"} 1' in text
    assert 'reweigh_changed_words_total{decoder="reweigh"} 0' in text
    assert 'model="reweigh-world"' in text.partition("reweigh_build_info{")[2].splitlines()[0]
    httpx.get(f"{counted.url}/v1/models/world")
    httpx.get(f"{counted.url}/css/page.css")
    httpx.get(f"{counted.url}/{'x' * 50}")
    text = httpx.get(f"{counted.url}/metrics").text
    assert 'reweigh_requests_total{path="/v1/models/",status="200"} 1' in text
    assert 'reweigh_requests_total{path="/css/",status="200"} 1' in text
    assert 'reweigh_requests_total{path="other",status="404"} 1' in text
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2


def test_bounds_must_be_positive():
    with pytest.raises(InputError, match="queue"):
        Bounds(queue=0)


def test_a_failing_row_harms_no_other(serving, monkeypatch):
    """A batch that fails before its first token is decoded row by row."""
    from reweigh.serve import scheduler

    real = scheduler.decode

    def decode(rows, recall, metrics):
        if any(row.stops == ("poison",) for row in rows):
            raise RuntimeError("a fault at /secret/place")
        real(rows, recall, metrics)

    monkeypatch.setattr(scheduler, "decode", decode)
    harmed = serving()

    async def all_of_them():
        async with harmed.client_async() as client:
            asked = [
                client.chat.completions.create(**body(picture(0)), stop=stop)
                for stop in (None, "poison", None)
            ]
            return await asyncio.gather(*asked, return_exceptions=True)

    first, poisoned, last = asyncio.run(all_of_them())
    assert first.choices[0].message.content == last.choices[0].message.content == "The image"
    assert isinstance(poisoned, openai.InternalServerError)
    assert "secret" not in str(poisoned)


def test_a_fault_is_reported_as_one_and_logged(serving, world, monkeypatch, caplog):
    """An error that nobody foresaw: OpenAI's body, the request's id, nothing of the error itself."""
    monkeypatch.setattr(world, "prepare", lambda *_: 1 / 0)
    answer = post(serving(), body())
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "division" not in answer.text
    number = answer.headers["x-request-id"]
    assert any(number in record.getMessage() and record.exc_info for record in caplog.records)
