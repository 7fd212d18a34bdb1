"""A real browser: the system's Chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from live import Running
from seen import Seen

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for a module; closed with it, because its event loop would be in the way of other tests."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Any, house: Running) -> Iterator[Callable[..., Seen]]:
    """``visit(fragment, url=, before=, **context)``: open the page; ``before(page)`` may set up routes."""
    with ExitStack() as stack:

        def opened(fragment: str = "", *, url: str | None = None, before: Any = None, **context: Any) -> Seen:
            made = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
            stack.callback(made.close)
            seen = Seen(made.new_page(), url or house.url)
            if before is not None:
                before(seen.page)
            seen.page.goto(f"{seen.url}/{fragment}")
            return seen

        yield opened
