"""Self-contained HTML pages: one skeleton, escaped text, embedded pictures, light and dark.

``Html`` is the only kind of string that enters a page as markup; any other string is escaped. Nothing here
loads a script, a font or a style from elsewhere. It does not know what the pages are about.
"""

from __future__ import annotations

import base64
import html as escaping
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from PIL.Image import Image


class Html(str):
    """Markup that is safe to put into a page as it is."""

    __slots__ = ()


VOID = frozenset({"br", "hr", "img", "input", "meta"})

STYLE = Path(__file__).with_name("page.css")
"""The style of every page: light and dark, narrow and printed."""


def escape(text: str) -> Html:
    """Turn a string into markup that shows it; ``Html`` passes as it is."""
    return text if isinstance(text, Html) else Html(escaping.escape(text, quote=True))


def join(parts: Iterable[str], between: str = "") -> Html:
    """Put parts one after the other, escaping those that are not markup."""
    return Html(escape(between).join(escape(part) for part in parts))


def element(tag: str, *children: str, **attributes: str | int | bool | None) -> Html:
    """Build one element. ``class_`` names the class; attributes that are None or False are left out.

    >>> element("p", "2 < 3", class_="muted")
    '<p class="muted">2 &lt; 3</p>'
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    opening = f"<{tag}{written}>"
    return Html(opening if tag in VOID else f"{opening}{join(children)}</{tag}>")


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def picture(
    image: Image | bytes, *, alt: str, max_side: int | None = None, kind: Literal["PNG", "JPEG"] = "PNG"
) -> Html:
    """Embed a picture as a data URI; ``max_side`` makes a thumbnail; PNG bytes are embedded unchanged."""
    if isinstance(image, bytes):
        data = image
        kind = "PNG"
    else:
        small = image.convert("RGB")
        if max_side is not None:
            small.thumbnail((max_side, max_side))
        buffer = BytesIO()
        small.save(buffer, kind, **({"quality": 85} if kind == "JPEG" else {}))
        data = buffer.getvalue()
    uri = f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode('ascii')}"
    return element("img", src=uri, alt=alt)


def tile(name: str, value: str, note: str = "") -> Html:
    """One large number with its name, for the top of a page; put several into ``tiles``."""
    parts = [element("span", name, class_="name"), element("b", value)]
    return element("div", *parts, element("span", note, class_="muted"), class_="tile")


def tiles(items: Iterable[Html]) -> Html:
    """A row of tiles."""
    return element("div", *items, class_="tiles")


def figure(drawing: Html, caption: str = "") -> Html:
    """A drawing (an SVG or a picture) with its caption."""
    return (
        element("figure", drawing, element("figcaption", caption)) if caption else element("figure", drawing)
    )


def card(small: Html | None, *body: str) -> Html:
    """An example: a picture, if there is one, beside its text."""
    shown = [] if small is None else [small]
    return element(
        "article", *shown, element("div", *body), class_="card example" if shown else "card example plain"
    )


def section(title: str, *children: str, anchor: str | None = None) -> Html:
    """A heading and what belongs to it; ``anchor`` is what links to it name."""
    return element("section", element("h2", title, id=anchor), *children)


def legend() -> Html:
    """Say what the colours of mentions mean."""
    return element(
        "p",
        element("span", "grounded", class_="grounded"),
        " is in the image, ",
        element("span", "hallucinated", class_="hallucinated"),
        " is not.",
        class_="muted",
    )


def document(title: str, *body: str, lead: str = "", footer: str = "") -> str:
    """A whole document that needs no other file."""
    head = join(
        [
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", title),
            element("style", Html(f"\n{STYLE.read_text(encoding='utf-8')}")),
        ]
    )
    parts = [element("h1", title)]
    if lead:
        parts.append(element("p", lead, class_="lead"))
    closing = [element("footer", footer)] if footer else []
    main = element("main", *parts, *body, *closing)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{main}</body></html>\n'
