"""How much code runs for one chat: distinct functions of ``src/reweigh``, and their files; ``pytest -s`` prints them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from pathlib import Path

import httpx
from live import picture, user

import reweigh
from reweigh.serve.app import Server

SOURCE = str(Path(reweigh.__file__).parent)
MOST = (262, 48)


def test_a_chat_stays_short(world):
    found: Counter[str] = Counter()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
            found[f"{code.co_filename[len(SOURCE) + 1 :]}:{code.co_qualname}"] += 1

    async def ask(number):
        server = Server(world)
        server.scheduler.start()
        transport = httpx.ASGITransport(app=server.app())
        asked = {"model": "world", "messages": [user(picture(number))], "max_tokens": 3}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            found.clear()
            answer = await client.post("/v1/chat/completions", json=asked)
        walked = dict(found)
        await server.scheduler.stop()
        assert answer.status_code == 200, answer.text
        return walked

    asyncio.run(ask(40))  # imports, and the proof of the lens
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        walked = asyncio.run(ask(41))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = Counter(one.partition(":")[0] for one in walked)
    print(f"\none chat: {len(walked)} functions in {len(files)} files")  # noqa: T201
    told = "\n".join(f"{count:4} {file}" for file, count in files.most_common())
    assert (len(walked) <= MOST[0], len(files) <= MOST[1]) == (True, True), f"{len(walked)}\n{told}"
