"""Several tables in one server: each request is answered with its own, and reloading replaces all of them or none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import numpy as np
import pytest
from live import DESCRIBE, picture, user

import reweigh
from reweigh.errors import InputError
from reweigh.serve.app import Server
from reweigh.serve.bounds import name_tables
from reweigh.serve.served import Served
from reweigh.tables.point import OperatingPoint
from reweigh.world import table_path

MODEL = "reweigh-world"
POINTS = {"default": (2, 3.5), "strict": (2, 9.0), "few": (1, 6.0)}


def write(folder, table, beta):
    """Save a table with an operating point of its own."""
    point = OperatingPoint(table.layer, beta, "tuned on 300 records of world, recorded with the table", 300)
    replace(table, point=point).save_pretrained(folder)
    return folder


@pytest.fixture
def folders(tmp_path):
    """A table that expects twice the evidence for each token, and one of another layer that knows half the tokens."""
    own = reweigh.ReferenceTable.from_pretrained(table_path())
    other = reweigh.ReferenceTable.from_pretrained(table_path(), layer=1)
    half = {name: getattr(other, name)[::2].copy() for name in ("tokens", "references", "counts")}
    return {
        "strict": write(tmp_path / "strict", replace(own, references=np.minimum(2 * own.references, 1)), 9.0),
        "few": write(tmp_path / "few", replace(other, **half), 6.0),
    }


@pytest.fixture
def serving_tables(world, folders, running_server):
    """``serving_tables(**options)``: a server of the embedded model with three tables."""

    def serve(**options):
        served = Served(
            world.model, world.processor, name=MODEL, table=table_path(), tables=folders, world=True
        )
        return running_server(Server(served, **options))

    return serve


def ask(running, table=None, number=20, **changes):
    told = {"evidence": True} | ({} if table is None else {"table": table})
    asked = {"model": MODEL, "messages": [user(picture(number))], "reweigh": told, **changes}
    return httpx.post(f"{running.url}/v1/chat/completions", json=asked, timeout=60)


def tokens(answer):
    assert answer.status_code == 200, answer.text
    return [one["token"] for one in answer.json()["choices"][0]["reweigh"]["tokens"]]


@pytest.fixture
def expected(world, folders):
    """``expected(name, scene)``: what the library writes with a table, measured anew."""

    def answer(name, number=20):
        source = folders.get(name, table_path())
        session = reweigh.attach(world.model, world.processor, table=source)
        assert (session.layer, session.beta) == POINTS[name]
        return list(session.answer([picture(number)], [DESCRIBE], max_new_tokens=512)[0].tokens)

    return answer


def counted(running, name):
    """The value of a metric, labels included in its name."""
    line = next(one for one in httpx.get(f"{running.url}/metrics").text.splitlines() if one.startswith(name))
    return float(line.rsplit(" ", 1)[1])


def test_each_request_is_answered_with_its_own_table(serving_tables, expected, caplog):
    """Asked together; each table has its own layer, beta and references, and is named where it is not the default."""
    caplog.set_level("INFO", logger="reweigh.serve")
    house = serving_tables()

    async def all_at_once():
        return await asyncio.gather(*(asyncio.to_thread(ask, house, name) for name in (None, *POINTS)))

    plain, *named = asyncio.run(all_at_once())
    answers = dict(zip(POINTS, named, strict=True))
    assert tokens(plain) == tokens(answers["default"])
    for name, (layer, beta) in POINTS.items():
        assert tokens(answers[name]) == expected(name)
        told = answers[name].json()["choices"][0]["reweigh"]
        assert (told["layer"], told["beta"]) == (layer, beta)
        assert told.get("table") == (None if name == "default" else name)
        header = answers[name].headers["x-reweigh"]
        shown = "" if name == "default" else f"; table={name}"
        assert header.startswith(f"edited; beta={beta:g}; layer={layer}{shown}; changed=")
        assert f'reweigh_table_info{{beta="{beta}",layer="{layer}",table="{name}"' in (
            httpx.get(f"{house.url}/metrics").text
        )
    assert len({tuple(tokens(answer)) for answer in named}) == 3
    assert counted(house, 'reweigh_table_answers_total{table="default"}') == 2
    assert counted(house, 'reweigh_table_answers_total{table="strict"}') == 1
    logged = [one.fields.get("table") for one in caplog.records if "chat" in one.getMessage()]
    assert sorted(map(str, logged)) == ["None", "None", "few", "strict"]


def test_both_names_of_the_field_and_every_decoder(serving_tables):
    house = serving_tables()
    asked = {"model": MODEL, "messages": [user(picture(20))], "max_tokens": 30}

    def post(**changes):
        return httpx.post(f"{house.url}/v1/chat/completions", json=asked | changes, timeout=60)

    ours = post(reweigh={"table": "strict", "evidence": True})
    theirs = post(vllm_xargs={"reweigh_table": "strict", "reweigh_evidence": True})
    assert ours.json()["choices"] == theirs.json()["choices"]
    off = post(vllm_xargs={"reweigh": "off", "reweigh_table": "strict"})
    assert off.headers["x-reweigh"] == "unedited; decoder=base; table=strict"
    for decoder in ("base",):  # their words are compared with the table that was asked for
        told = post(reweigh={"decoder": decoder, "table": "strict", "evidence": True})
        plain = post(reweigh={"decoder": decoder, "evidence": True})
        pairs = zip(*(one.json()["choices"][0]["reweigh"]["tokens"] for one in (told, plain)), strict=True)
        known = [(one["b"], other["b"]) for one, other in pairs if one["b"] is not None]
        assert known
        assert all(one == pytest.approx(min(2 * other, 1)) for one, other in known)
    with httpx.stream(
        "POST",
        f"{house.url}/v1/chat/completions",
        json=asked | {"stream": True, "reweigh": {"table": "few"}},
        timeout=60,
    ) as stream:
        assert stream.headers["x-reweigh"] == "edited; beta=6; layer=1; table=few"


def test_an_unknown_table_is_refused_with_those_there_are(serving_tables, house):
    several = serving_tables()
    answer = ask(several, "stict")
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "reweigh.table", "unknown_table")
    assert "did you mean strict" in error["message"]
    assert "default, few, strict" in error["message"]
    for name in ("", "../few", "x" * 1_000_000):
        refused = ask(several, name)
        assert refused.status_code == 400
        assert len(refused.content) < 1000
    assert ask(several, "few", reweigh={"table": "few", "layer": 2}).status_code == 400  # it has layer 1 only
    asked = {"model": MODEL, "messages": [user()], "vllm_xargs": {"reweigh_table": "x"}}
    refused = httpx.post(f"{house.url}/v1/chat/completions", json=asked).json()["error"]
    assert refused["param"] == "vllm_xargs.reweigh_table"


def test_a_server_without_tables_refuses_to_use_one(world, running_server):
    plain = running_server(Server(Served(world.model, world.processor, name=MODEL)))
    for options in ({"table": "default"}, {"table": "x", "decoder": "base"}):
        refused = ask(plain, reweigh=options)
        assert refused.status_code == 400
        assert "without a reference table" in refused.json()["error"]["message"]
    assert httpx.post(f"{plain.url}/v1/reweigh/reload").status_code == 409


def test_evidence_of_a_picture_is_shared_only_where_it_is_the_same(serving_tables, expected):
    """Tables of one layer and the same tokens share it; one of another layer measures its own."""
    house = serving_tables()

    def sources():
        return tuple(
            counted(house, f'reweigh_evidence_total{{source="{name}"}}') for name in ("measured", "recalled")
        )

    for name, so_far in (("default", (1, 0)), ("strict", (1, 1)), ("few", (2, 1)), ("few", (2, 2))):
        assert tokens(ask(house, name, 31)) == expected(name, 31)
        assert sources() == so_far
    httpx.post(f"{house.url}/inspect/measure", json={"messages": [user(picture(32))]}, timeout=60)
    for name in POINTS:  # out of the whole vocabulary at every layer
        assert tokens(ask(house, name, 32)) == expected(name, 32)
    assert sources() == (2, 5)


def test_reloading_replaces_all_tables_or_none(serving_tables, folders, caplog):
    house = serving_tables()
    before = {name: tokens(ask(house, name)) for name in POINTS}
    strict = reweigh.ReferenceTable.from_pretrained(folders["strict"])
    few = reweigh.ReferenceTable.from_pretrained(folders["few"])
    softer = replace(strict, references=strict.references / 2)
    write(folders["strict"], softer, 2.5)
    (folders["few"] / "layer-1.safetensors").write_text("{")
    refused = httpx.post(f"{house.url}/v1/reweigh/reload", timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_reloaded")
    assert "table few" in refused.json()["error"]["message"]
    assert str(folders["few"].parent) not in refused.text
    assert [one.getMessage().count("\n") for one in caplog.records if "stay in use" in one.getMessage()] == [
        0
    ]
    assert {name: tokens(ask(house, name)) for name in POINTS} == before
    (folders["few"] / "layer-1.safetensors").unlink()
    write(folders["few"], few, 1.5)
    told = httpx.post(f"{house.url}/v1/reweigh/reload", timeout=60)
    assert told.status_code == 200, told.text
    same = {"layer": 2, "beta": 3.5, "changed": False}
    assert told.json() == {
        "table": {"sha256": reweigh.ReferenceTable.from_pretrained(table_path()).fingerprint, **same},
        "tables": {
            "strict": {"sha256": softer.fingerprint, "layer": 2, "beta": 2.5, "changed": True},
            "few": {"sha256": few.fingerprint, "layer": 1, "beta": 1.5, "changed": False},
        },
    }
    assert "beta=2.5;" in ask(house, "strict").headers["x-reweigh"]
    assert "beta=1.5;" in ask(house, "few").headers["x-reweigh"]
    assert tokens(ask(house)) == before["default"]
    assert 'beta="1.5",layer="1",table="few"' in httpx.get(f"{house.url}/metrics").text
    assert 'beta="6.0"' not in httpx.get(f"{house.url}/metrics").text


def test_a_disk_that_fails_leaves_the_old_tables_in_use(serving_tables, monkeypatch):
    house = serving_tables()

    def fail(_):
        raise OSError(5, "Input/output error", "/secret/table")

    monkeypatch.setattr(Served, "reload", fail)
    refused = httpx.post(f"{house.url}/v1/reweigh/reload", timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_reloaded")
    assert "/secret" not in refused.text
    assert ask(house).status_code == 200


def test_who_may_reload(serving, world, monkeypatch):
    path = "/v1/reweigh/reload"
    locked = serving(key="secret")
    assert httpx.post(locked.url + path).status_code == 401
    assert httpx.post(locked.url + path, headers={"Authorization": "Bearer secret"}).status_code == 200
    assert httpx.get(locked.url + path, headers={"Authorization": "Bearer secret"}).status_code == 405
    own = serving()
    assert httpx.post(own.url + path).status_code == 200
    assert httpx.post(own.url + path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403

    async def from_elsewhere(server):
        transport = httpx.ASGITransport(app=server.app(), client=("192.0.2.7", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.post(path)).json()["error"]["code"]

    assert asyncio.run(from_elsewhere(Server(world))) == "not_loopback"


def test_tables_have_names_and_one_of_them_is_the_default(world):
    assert name_tables(["a/b", "kitchen=c/d", "x.1=org/repo"]) == {
        "default": "a/b",
        "kitchen": "c/d",
        "x.1": "org/repo",
    }
    assert name_tables(["./a=b"]) == {"default": "./a=b"}
    for wrong in (["a", "b"], ["x=a", "x=b"], ["x="], ["a", "default=b"]):
        with pytest.raises(InputError, match="table"):
            name_tables(wrong)
    with pytest.raises(InputError, match="table kitchen"):  # which of several cannot be read
        Served(world.model, world.processor, name=MODEL, table=table_path(), tables={"kitchen": "no/such"})
    with pytest.raises(InputError, match="default"):
        Served(world.model, world.processor, name=MODEL, tables={"a": table_path()})
    with pytest.raises(InputError, match="name 'a b'"):
        Served(world.model, world.processor, name=MODEL, table=table_path(), tables={"a b": table_path()})
