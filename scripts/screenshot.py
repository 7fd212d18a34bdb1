"""Record the pictures of README and docs in Chromium: the inspector with a changed word chosen, and the demo's first case.

python scripts/screenshot.py [inspector] [demo]
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
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


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """A page in its own browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto(url)
        yield page
        browser.close()


def record_inspector(out: Path) -> None:
    """Serve the embedded model and record the page once a word is chosen and painted."""
    with served() as address, opened(address) as page:
        page.wait_for_selector("html[data-busy=false] #right .word", timeout=120_000)
        page.locator("#right .place:has(del) .word", has_text="bicycle").click()
        page.wait_for_selector("canvas.painted")
        page.mouse.move(5, 5)
        page.screenshot(path=out)


def record_demo(out: Path) -> None:
    """Run the demonstration on a few scenes and record the first case of its page."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        command = ["reweigh", "demo", "--quick", "--scenes", "40", "--out", str(report)]
        subprocess.run([sys.executable, "-m", *command], check=True)
        with opened(report.as_uri()) as page:
            page.locator("article.card").first.screenshot(path=out)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["inspector", "demo"]
    if "inspector" in wanted:
        record_inspector(IMAGES / "inspector.png")
    if "demo" in wanted:
        record_demo(IMAGES / "demo.png")
