"""Pages: escaped markup, parts in their order, and the same words and tables on every face."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from io import BytesIO, StringIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from reweigh.lab.estimate import Estimate
from reweigh.lab.views.html import Html, legend, part, picture
from reweigh.lab.views.page import Page
from reweigh.lab.views.table import Column, Table


class Outline(HTMLParser):
    """Collects text, tags and outside references of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.open: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "img", "br"}:
            self.open.append(tag)
        self.references += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def outline(document: str) -> Outline:
    parser = Outline()
    parser.feed(document)
    parser.close()
    assert parser.open == []
    return parser


@given(st.text(st.characters(exclude_characters="\r\0")))
def test_any_text_comes_back_as_itself(text: str) -> None:
    assert "".join(outline(part("paragraph", text)).text) == text


@given(st.text(st.characters(exclude_characters="\r\0"), min_size=1))
def test_an_attribute_cannot_break_out(text: str) -> None:
    parser = HTMLParser()
    seen: list[list[tuple[str, str | None]]] = []
    parser.handle_starttag = lambda tag, attrs: seen.append(attrs)  # type: ignore[method-assign]
    parser.feed(part("picture", "data:,", text))
    assert seen == [[("src", "data:,"), ("alt", text)]]


def test_markup_is_not_escaped_twice() -> None:
    inner = part("strong", "a & b")
    assert inner == "<p><b>a &amp; b</b></p>"
    assert part("figure", inner) == "<figure><p><b>a &amp; b</b></p></figure>"
    assert isinstance(inner, Html)


def test_a_picture_is_embedded_whole() -> None:
    image = Image.new("RGB", (80, 40), (200, 10, 10))
    for markup, size in (
        (picture(image, alt="red"), (80, 40)),
        (picture(image, alt="red", max_side=20, kind="JPEG"), (20, 10)),
    ):
        found = re.search(r'src="data:image/(png|jpeg);base64,([^"]+)"', markup)
        assert found is not None
        with Image.open(BytesIO(base64.b64decode(found[2]))) as back:
            assert back.size == size
    assert image.size == (80, 40)


def test_png_bytes_pass_unchanged() -> None:
    assert base64.b64encode(b"\x89PNG...").decode() in picture(b"\x89PNG...", alt="")


def test_a_page_is_whole_and_needs_no_other_file() -> None:
    image = picture(Image.new("RGB", (4, 4)), alt="<x>")
    page = Page("A <title>", lead="lead & more", footer="end").section("Numbers")
    tiles = part("tiles", [("CHAIR_S", "44.8", "[40, 49]")])
    made = page.add(tiles, part("figure", image, "cap"), legend()).html()
    seen = outline(made)
    assert made.startswith("<!doctype html>")
    assert "A <title>" in seen.text
    assert "lead & more" in seen.text
    assert all(reference.startswith("data:") for reference in seen.references)
    assert "http" not in made.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in made


def test_parts_come_in_order_and_are_escaped(tmp_path: Path) -> None:
    page = Page("A <title>", lead="lead", footer="end").text("first")
    page.section("Numbers", anchor="numbers").table(Table([Column("a")], [["1 < 2"]]))
    page.intervals({"x": Estimate(1.0, 0.0, 2.0)}, "Drawn.").section("Rest").text("last", muted=True)
    text = page.write(tmp_path / "page.html").read_text()
    places = [
        text.index(one)
        for one in ("A &lt;title&gt;", "lead", "first", 'id="numbers"', "1 &lt; 2", "<svg", ">last<", ">end<")
    ]
    assert places[2:] == sorted(places[2:])
    assert "<script" not in text


def test_long_tables_are_folded_and_nothing_is_drawn_of_nothing() -> None:
    rows = [[str(number)] for number in range(5)]
    assert "<details>" in Page("x").table(Table([Column("a")], rows), fold=4).html()
    assert "<details>" not in Page("x").table(Table([Column("a")], rows)).html()
    assert "<figure" not in Page("x").intervals({}, "Nothing.").html()


def test_a_record_is_in_words() -> None:
    record = {"versions": {"torch": "2.13"}, "seen": [1, {"left": True}], "forced": False, "gone": None}
    shown = Page("A page").record(record, "what it depends on").html()
    for name, words in {"versions.torch": "2.13", "seen": "1, left yes", "forced": "no"}.items():
        assert f'<th class="words" scope="row">{name}</th><td class="words">{words}</td>' in shown
    assert "gone" not in shown


def test_words_and_tables_have_the_same_order_on_every_face(tmp_path: Path) -> None:
    page = Page("Title", lead="lead").section("Drawn").add(Html("<svg></svg>"))
    page.section("Numbers").table(Table([Column("arm"), Column("F1")], [["base", 80.1]])).text("a note")
    stream = StringIO()
    Console(file=stream, width=60).print(page.terminal())
    faces = [stream.getvalue()]
    for name in ("page.md", "page.tex"):
        faces.append(page.write(tmp_path / name).read_text())
    for face in faces:
        places = [face.index(one) for one in ("lead", "Numbers", "base", "80.1", "a note")]
        assert places == sorted(places)
        assert "Drawn" not in face, "a section of drawings alone is for pages"
        assert "svg" not in face
