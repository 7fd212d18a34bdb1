from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reweigh.results.html import (
    Html,
    document,
    element,
    escape,
    figure,
    join,
    legend,
    picture,
    section,
    tile,
    tiles,
)


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
    assert "".join(outline(element("p", text)).text) == text


@given(st.text(st.characters(exclude_characters="\r\0"), min_size=1))
def test_an_attribute_cannot_break_out(text: str) -> None:
    parser = HTMLParser()
    seen: list[list[tuple[str, str | None]]] = []
    parser.handle_starttag = lambda tag, attrs: seen.append(attrs)  # type: ignore[method-assign]
    parser.feed(element("p", title=text))
    assert seen == [[("title", text)]]


def test_markup_is_not_escaped_twice() -> None:
    inner = element("b", "a & b")
    assert element("p", inner) == "<p><b>a &amp; b</b></p>"
    assert escape(inner) is inner
    assert isinstance(join([inner, "<"]), Html)
    assert join(["a", "b"], " & ") == "a &amp; b"


def test_attributes_left_out_and_without_value() -> None:
    assert (
        element("details", open=True, class_=None, hidden=False, data_x=3)
        == '<details open data-x="3"></details>'
    )
    assert element("br") == "<br>"


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
    body = section("Numbers", tiles([tile("CHAIR_S", "44.8", "[40, 49]")]), figure(image, "cap"), legend())
    made = document("A <title>", body, lead="lead & more", footer="end")
    seen = outline(made)
    assert made.startswith("<!doctype html>")
    assert "A <title>" in seen.text
    assert "lead & more" in seen.text
    assert all(reference.startswith("data:") for reference in seen.references)
    assert "http" not in made.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in made
