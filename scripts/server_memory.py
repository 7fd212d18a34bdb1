"""Measure memory and time of requests to `reweigh serve`: ``python scripts/server_memory.py [MODEL]`` (Linux)."""

from __future__ import annotations

import base64
import os
import re
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import httpx
from PIL import Image

MEGA = 1 << 20


class Process:
    """A server of its own, and its memory."""

    def __init__(self, model: str) -> None:
        command = [sys.executable, "-m", "reweigh", "serve", model, "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"(\S+) at (http://\S+:\d+)", line):
                self.url = found[2]
                break
        else:
            raise SystemExit("the server did not start")
        self.model = httpx.get(f"{self.url}/v1/models").json()["data"][0]["id"]

    def memory(self, name: str = "VmRSS") -> float:
        """Return MiB of resident memory, or the peak with ``VmHWM``."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) / 1024

    def ask(self, pictures: Sequence[bytes]) -> tuple[int, float]:
        """Return status and seconds of a chat with some pictures."""
        urls = ["data:image/png;base64," + base64.b64encode(one).decode() for one in pictures]
        content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        turn = {"role": "user", "content": [*content, {"type": "text", "text": "Describe the image."}]}
        body = {"model": self.model, "messages": [turn], "max_tokens": 8}
        begin = time.perf_counter()
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=600)
        return answer.status_code, time.perf_counter() - begin

    def play(self, name: str, requests: Sequence[Sequence[bytes]], together: int = 1) -> None:
        """Send requests, and print what they took."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")  # the peak starts again from here
        before = self.memory()
        with ThreadPoolExecutor(together) as pool:
            answers = list(pool.map(self.ask, requests))
        peak = self.memory("VmHWM") - before
        time.sleep(2)
        statuses = ", ".join(map(str, sorted({status for status, _ in answers})))
        slowest = max(seconds for _, seconds in answers)
        held = self.memory() - before
        sys.stdout.write(f"| {name} | {statuses} | {slowest:.2f} s | {peak:+,.0f} MiB | {held:+,.0f} MiB |\n")


def flat(width: int, height: int) -> bytes:
    """Encode a gray picture in a few bytes, without a buffer of its size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer, row = zlib.compressobj(9), bytes(1 + width)
    rows = b"".join([*(packer.compress(row) for _ in range(height)), packer.flush()])
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def photo(width: int, height: int) -> bytes:
    """Encode a picture that does not compress to nothing."""
    kept = BytesIO()
    noise = Image.frombytes("RGB", (64, 64), os.urandom(64 * 64 * 3))
    noise.resize((width, height)).save(kept, "JPEG", quality=90)
    return kept.getvalue()


def main() -> None:
    """Play all requests."""
    server = Process(sys.argv[1] if len(sys.argv) > 1 else "world")
    try:
        server.ask([photo(640, 480)])
        sys.stdout.write(f"{server.model} at rest: {server.memory():,.0f} MiB\n\n")
        sys.stdout.write(
            "| requests | status | slowest | peak | two seconds later |\n|---|---|---:|---:|---:|\n"
        )
        large, twelve, small = flat(6800, 6800), photo(4000, 3000), photo(1024, 768)
        server.play("a picture of 2 x 60,000", [[flat(2, 60_000)]])
        server.play("a picture of 2 x 120,000", [[flat(2, 120_000)]])
        server.play("eight pictures of 46 megapixels", [[large] * 8])
        server.play("a picture of 46 megapixels", [[large]])
        server.play("a picture of 8 x 800", [[flat(8, 800)]])
        server.play("16 photos of 1024 x 768 at once", [[small]] * 16, 16)
        server.play("20 photos of 12 megapixels, one by one", [[twelve]] * 20)
        server.play("20 photos of 12 megapixels at once", [[twelve]] * 20, 20)
    finally:
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()
