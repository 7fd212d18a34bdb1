"""A table that is read again while the server runs: all of it, or the old one stays."""

from __future__ import annotations

import asyncio
import shutil

import httpx

from reweigh.serve.app import Server
from reweigh.serve.served import Served
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import record_point
from reweigh.world import table_path


def reload(server):
    async def run():
        server.scheduler.start()
        await server.reload()
        await server.scheduler.stop()

    asyncio.run(run())


def test_a_new_table_is_used_and_a_broken_one_is_not(world, tmp_path, caplog):
    folder = shutil.copytree(table_path(), tmp_path / "table")
    served = Served(world.model, world.processor, name="world", table=folder)
    before = served.reweigh(), served.reweigh(1)
    record_point(folder, OperatingPoint(2, 1.3, "tuned", 300))
    reload(Server(served))
    assert (served.reweigh().beta, before[0].beta) == (1.3, 3.5)
    kept = served.reweigh(), served.reweigh(1)
    (folder / "layer-2.safetensors").write_text("{")
    server = Server(served)
    reload(server)
    assert (served.reweigh(), served.reweigh(1)) == kept
    assert 'beta="1.3"' in server.metrics.text()
    told = [one.getMessage() for one in caplog.records if "stays in use" in one.getMessage()]
    assert [one.count("\n") for one in told] == [0]


def test_a_disk_that_fails_leaves_the_old_table_in_use(world, monkeypatch, caplog):
    def fail(_):
        raise OSError(5, "Input/output error", "table")

    monkeypatch.setattr(Served, "reload", fail)
    reload(Server(world))
    assert any("stays in use" in one.getMessage() for one in caplog.records)


def test_no_route_reloads(house):
    assert httpx.post(f"{house.url}/v1/reweigh/reload", json={}).status_code == 404
