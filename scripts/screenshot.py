"""Record the pictures of README and docs in Chromium, for light and dark readers: the page, still and moving, and the demo.

python scripts/screenshot.py [inspector] [moving] [demo]
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 800
"""Pixels that a reader sees; still pictures of the page have twice as many."""
PAGE = {"width": 1000, "height": 720}
LONGEST = 2_000_000
"""Bytes of the moving picture."""
TO_THE_ANSWERS = "document.getElementById('answers').scrollIntoView()"
CURSOR = """() => {
  const cursor = document.createElement("div");
  cursor.id = "cursor";
  cursor.style.cssText = "position:fixed;z-index:99;width:22px;height:22px;pointer-events:none;left:600px;top:640px;" +
    "background:CanvasText;clip-path:polygon(0 0,0 78%,22% 60%,40% 100%,54% 94%,37% 56%,66% 54%)";
  document.body.append(cursor);
}"""


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
def opened(url: str, scheme: str, **context: Any) -> Iterator[Page]:
    """A page in its own browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(color_scheme=scheme, reduced_motion="reduce", **context)
        page.goto(url)
        yield page
        browser.close()


def record_inspector(out: Path, scheme: str) -> None:
    """Record the page once a struck-out word is open."""
    with (
        served() as address,
        opened(address, scheme, viewport=PAGE, device_scale_factor=2 * WIDTH / PAGE["width"]) as page,
    ):
        page.wait_for_selector("html[data-whole=true]", timeout=120_000)
        page.locator("#right .held", has_text="traffic").first.click()
        page.wait_for_selector("#maps .map:nth-child(2) canvas.painted")
        page.mouse.move(5, 5)
        page.evaluate(TO_THE_ANSWERS)
        end = page.evaluate("document.querySelector('.pair').getBoundingClientRect().bottom + 14")
        page.screenshot(path=out, clip={"x": 0, "y": 0, "width": PAGE["width"], "height": end})


def record_moving(out: Path, scheme: str) -> None:
    """Record the answers as they are written, a click on a struck-out word, other layers and another word."""
    frames: list[tuple[bytes, int]] = []
    with served() as address, opened(address, scheme, viewport=PAGE) as page:
        page.wait_for_selector("html[data-whole=true]", timeout=120_000)

        def show(milliseconds: int) -> None:
            frames.append((page.screenshot(), milliseconds))

        def click(selector: str, steps: int = 8) -> None:
            box = page.locator(selector).first.bounding_box()
            assert box is not None
            to = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            here = page.evaluate("[cursor.offsetLeft, cursor.offsetTop]")
            for step in range(1, steps + 1):
                x, y = (a + (b - a) * step / steps for a, b in zip(here, to, strict=True))
                page.evaluate(f"cursor.style.left = '{x}px'; cursor.style.top = '{y}px'")
                show(50)
            page.mouse.click(*to)
            page.wait_for_timeout(300)

        page.evaluate(TO_THE_ANSWERS)
        page.evaluate(CURSOR)
        page.evaluate("document.documentElement.dataset.busy = 'asked'")
        page.evaluate("document.getElementById('go').click()")  # without scrolling to it
        while page.locator("html[data-busy=false]").count() == 0:
            show(150)
        page.wait_for_selector("html[data-whole=true]")
        show(1500)
        click("#right .held:has-text('traffic')")
        page.wait_for_selector("#maps .map:nth-child(2) canvas.painted")
        show(2600)
        for layer, milliseconds in ((1, 700), (3, 700), (2, 500)):
            click(f"#heat-layers label:nth-child({layer})", 3)
            show(milliseconds)
        click("#right .place:has-text('bicycle') .held")
        page.wait_for_selector("#maps:has-text('bicycle')")
        show(2200)
    pictures = [_small(data) for data, _ in frames]
    pictures[0].save(
        out,
        save_all=True,
        append_images=pictures[1:],
        duration=[time for _, time in frames],
        loop=0,
        quality=70,
        method=4,
    )
    seconds, size = sum(time for _, time in frames) / 1000, out.stat().st_size
    print(f"{out.name}: {seconds:.1f} s, {size / 1e6:.2f} MB")  # noqa: T201
    if size > LONGEST:
        raise SystemExit(f"{out.name} has more than {LONGEST / 1e6:.0f} MB")


def _small(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)


def record_demo(out: Path, scheme: str) -> None:
    """Run the demonstration on a few scenes and record the first case of its page."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        command = ["reweigh", "demo", "--quick", "--scenes", "40", "--out", str(report)]
        subprocess.run([sys.executable, "-m", *command], check=True)
        size = {"width": WIDTH, "height": 900}
        with opened(report.as_uri(), scheme, viewport=size, device_scale_factor=1.25) as page:
            page.locator("article.card").first.screenshot(path=out)


RECORDINGS = {
    "inspector": (record_inspector, "inspector", "png"),
    "moving": (record_moving, "inspector", "webp"),
    "demo": (record_demo, "demo", "png"),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or RECORDINGS:
        record, stem, ending = RECORDINGS[name]
        record(IMAGES / f"{stem}.{ending}", "light")
        record(IMAGES / f"{stem}-dark.{ending}", "dark")
