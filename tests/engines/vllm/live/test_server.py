"""The OpenAI server with an engine process and two tensor-parallel workers: everything crosses processes."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from client import API_SERVER, QUESTION, ask, options_of, png, post, reload, said, serving
from harness import OFF, V2

from reweigh.tables.table import ReferenceTable

TOKENS = 30

pytestmark = pytest.mark.skipif(
    V2, reason="two workers on the interpreter take minutes; V1 crosses the same processes"
)


@pytest.fixture(scope="module")
def table(world, tmp_path_factory):
    """A copy of the table, to be replaced while the server runs."""
    return shutil.copytree(world.table, tmp_path_factory.mktemp("tables") / "table")


@pytest.fixture(scope="module")
def server(world, table, tmp_path_factory):
    more = {"tensor-parallel-size": 2, "logprobs-mode": "processed_logprobs"}
    command = [*API_SERVER, *options_of(world, {"table": str(table)}, more)]
    with serving(command, tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="module")
def strict(world, tmp_path_factory):
    """A server that refuses a picture whose evidence it has forgotten: the second time it sees it."""
    settings = {"prefix_cache": "recall", "memory_mb": 0, "unedited": "refuse"}
    command = [*API_SERVER, *options_of(world, settings, {"block-size": 32})]
    with serving(command, tmp_path_factory.mktemp("strict"), threads="0") as address:
        ask(address, world, 0, OFF)
        yield address


def test_concurrent_chats_get_the_transformers_engine_s_tokens(server, world):
    kinds = {"plain": OFF, "edited": None, "half": {"reweigh_beta": world.beta / 2}}
    asked = [(case, kind) for case in range(4) for kind in kinds]
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda one: ask(server, world, one[0], kinds[one[1]]), asked))
    for (case, kind), answer in zip(asked, answers, strict=True):
        assert answer["prompt_token_ids"] == world.cases[case]["prompt_ids"]
        assert answer["choices"][0]["token_ids"] == world.cases[case][kind][:TOKENS], (case, kind)
        told = (answer["kv_transfer_params"] or {}).get("reweigh")
        assert (told is None) if kind == "plain" else told["edited"]


@pytest.mark.parametrize(("kind", "asked"), [("edited", None), ("plain", OFF)])
def test_a_streamed_chat_says_whether_it_was_edited(server, world, kind, asked):
    chunks = ask(server, world, 1, asked, stream=True)
    tokens = [
        token for chunk in chunks for choice in chunk["choices"] for token in choice.get("token_ids") or []
    ]
    assert tokens == world.cases[1][kind][:TOKENS]
    told = [chunk["kv_transfer_params"]["reweigh"] for chunk in chunks if "kv_transfer_params" in chunk]
    assert [one["edited"] for one in told] == ([True] if kind == "edited" else [])
    header = f"edited; beta={world.beta:g}; layer={world.layer}"
    assert said[-1] == (header if kind == "edited" else None)


def beams(address, world, case, xargs):
    answer = ask(address, world, case, xargs, use_beam_search=True, n=2, max_tokens=8)
    return [choice["token_ids"] for choice in answer["choices"]]


def test_beams_are_searched_as_the_request_asks(server, world):
    """vLLM's beam search drops a request's extra arguments; reweigh carries them through."""
    different = 0
    for case in range(3):
        default = beams(server, world, case, None)
        assert said[-1] == f"edited; beta={world.beta:g}; layer={world.layer}"
        off = beams(server, world, case, OFF)
        assert said[-1] is None
        assert beams(server, world, case, {"reweigh_beta": 0}) == off
        assert beams(server, world, case, {"reweigh_beta": world.beta}) == default
        different += default != off
        different += beams(server, world, case, {"reweigh_beta": 9}) != off
    assert different >= 3
    for asked in ({"reweigh_beta": -1}, {"reweigh_evidence": True}):
        with pytest.raises(urllib.error.HTTPError) as failed:
            beams(server, world, 0, asked)
        assert failed.value.code == 400
    assert beams(server, world, 0, OFF)  # the server still answers


def test_a_request_that_cannot_be_edited_is_refused_with_the_reason_on_every_route(strict, world):
    picture = png(world, 0)
    source = {"type": "base64", "media_type": "image/png", "data": picture}
    url = f"data:image/png;base64,{picture}"
    asked = {
        "/v1/chat/completions": [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": QUESTION},
        ],
        "/v1/responses": [
            {"type": "input_image", "image_url": url, "detail": "auto"},
            {"type": "input_text", "text": QUESTION},
        ],
        "/v1/messages": [{"type": "image", "source": source}, {"type": "text", "text": QUESTION}],
    }
    for route, content in asked.items():
        key = "input" if route == "/v1/responses" else "messages"
        limit = "max_output_tokens" if route == "/v1/responses" else "max_tokens"
        for stream in (False, True):
            body = {"model": "world", key: [{"role": "user", "content": content}], limit: 8, "stream": stream}
            with pytest.raises(urllib.error.HTTPError) as failed:
                post(f"{strict}{route}", body).close()
            assert failed.value.code == 422, (route, stream, failed.value.read())
            error = json.load(failed.value)["error"]
            assert "prefix cache" in error["message"], route
            assert failed.value.headers["x-reweigh"].startswith("unedited; its image"), route
    answer = ask(strict, world, 3, None)  # others are served as before
    assert answer["choices"][0]["token_ids"] == world.cases[3]["edited"][:TOKENS]


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


def test_both_workers_read_a_new_table(server, world, table):
    """Layer and beta stay those of the section; half the references make other strengths."""
    before = ask(server, world, 4, None)["choices"][0]["token_ids"]
    assert not reload(server)["table"]["changed"]
    old = ReferenceTable.from_pretrained(table)
    shutil.rmtree(table)
    ReferenceTable(
        old.layer, old.scale, old.tokens, old.references / 2, old.counts, old.made_with
    ).save_pretrained(table)
    assert reload(server)["table"]["changed"]
    assert ask(server, world, 4, None)["choices"][0]["token_ids"] != before
    assert ask(server, world, 4, OFF)["choices"][0]["token_ids"] == world.cases[4]["plain"][:TOKENS]
    shutil.rmtree(table)
    with pytest.raises(urllib.error.HTTPError) as failed:
        reload(server)
    assert failed.value.code == 409
    shutil.copytree(world.table, table)
    reload(server)
    assert ask(server, world, 4, None)["choices"][0]["token_ids"] == before
