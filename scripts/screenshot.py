"""Serve the embedded model, open the page in Chromium, choose a word that ReWEIGH changed, and record what is seen.

Give a path to write elsewhere: scripts/screenshot.py my.png
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

OUT = Path(__file__).parents[1] / "docs" / "images" / "inspector.png"
SIZE = {"width": 1280, "height": 1120}


@contextmanager
def served() -> Iterator[str]:
    """The address of a server that runs until the block ends."""
    command = [sys.executable, "-m", "reweigh", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"http://\S+", line):
                    yield found[0]
                    break
            else:
                raise SystemExit("the server did not start")
        finally:
            process.terminate()
            process.communicate()


def record(url: str, out: Path) -> None:
    """Open the page and record it once a word is chosen and painted."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto(url)
        page.wait_for_selector("html[data-busy=false] #right .word", timeout=120_000)
        page.locator("#right .place:has(del) .word").nth(1).click()
        page.wait_for_selector("canvas.painted")
        page.mouse.move(5, 5)
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    with served() as address:
        record(address, target)
