"""No answer, file name or name of a model enters a page as markup."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.types import Item, Summary
from reweigh.lab.views import html
from reweigh.lab.views.charts import scatter
from reweigh.lab.views.examples import add_examples, example
from reweigh.lab.views.html import part
from reweigh.lab.views.page import Page
from reweigh.lab.views.table import Column, Table

BAD = "<script>alert('x')</script>\"&"


class Tags(HTMLParser):
    """The tags of a document, and the attributes that run code."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {tag, *(name for name, _ in attrs if name.startswith("on"))}


def page(folder: Path) -> str:
    """A page with the hostile text in every place that takes text."""
    image = folder / "<script>alert(1)<x>.png"
    image = image.with_name(image.name.replace("/", ""))
    Image.new("RGB", (4, 4)).save(image)
    mention = {"start": 0, "end": 8, "hallucinated": True, "object": BAD}
    details = {"mentions": [mention], "reference": [BAD], "question": BAD, "reply": BAD, "missed": [BAD]}
    items = [Item(id=BAD, image=BAD, counts={}, details=details)]
    run = Scored(items, Summary.of(items, benchmark="x", metrics={}))
    run = dataclasses.replace(run, texts={BAD: f"{BAD} a dog"})
    shown = Page(BAD, lead=BAD, footer=BAD).section(BAD, anchor=BAD).text(BAD)
    shown.table(Table([Column(BAD), Column(BAD, group=BAD)], [[BAD, BAD]], BAD, links={0: BAD}), fold=0)
    shown.record({BAD: BAD}, BAD).add(part("tiles", [(BAD, BAD, BAD)]), part("code", [BAD]))
    shown.add(part("contents", [(BAD, BAD, BAD)]), part("runs", [(BAD, {BAD: BAD})]))
    shown.add(part("bullets", [BAD]), part("definitions", BAD, [(BAD, BAD)]), part("strong", BAD))
    shown.chart(lambda panel, narrow: scatter(panel, [], across=BAD, up=BAD), BAD)
    add_examples(shown, run, lambda _: image)
    return shown.add(example(BAD, [(BAD, run)], image, BAD, title=BAD, question=BAD)).html()


def test_a_script_in_an_answer_or_a_file_name_is_shown_and_not_run(tmp_path: Path) -> None:
    document = page(tmp_path)
    tags = Tags(document).seen
    assert "script" not in tags
    assert "img" in tags, "the picture with that name is on the page"
    assert document.count("&lt;script&gt;") > 30


def test_without_escaping_the_script_would_be_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = html.templates().overlay(autoescape=False, cache_size=0)
    monkeypatch.setattr(html, "templates", lambda: environment)
    assert "script" in Tags(page(tmp_path)).seen
