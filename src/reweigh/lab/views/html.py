"""Markup for self-contained pages: escaped text and embedded pictures.

``Html`` is the only kind of string that enters a page as markup; any other string is escaped. Nothing here loads a
script, a font or a style from elsewhere.
"""

from __future__ import annotations

import base64
import html as escaping
from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Literal

from reweigh.marks import MARKS, Kind

if TYPE_CHECKING:
    from PIL.Image import Image


class Html(str):
    """Markup that is safe to put into a page as it is."""

    __slots__ = ()


VOID = frozenset({"br", "hr", "img", "input", "meta"})


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


def tiles(*items: tuple[str, str, str]) -> Html:
    """Return large numbers for the top of a page, each with its name and a note."""
    made = [
        element(
            "div",
            element("span", name, class_="name"),
            element("b", value),
            element("span", note, class_="muted"),
            class_="tile",
        )
        for name, value, note in items
    ]
    return element("div", *made, class_="tiles")


def figure(drawing: Html, caption: str = "") -> Html:
    """Return a drawing (an SVG or a picture) with its caption."""
    return element("figure", drawing, *([element("figcaption", caption)] if caption else []))


def card(small: Html | None, *body: str) -> Html:
    """Return an example: a picture, if there is one, beside its text."""
    shown = [] if small is None else [small]
    return element(
        "article", *shown, element("div", *body), class_="card example" if shown else "card example plain"
    )


def legend(*kinds: Kind) -> Html:
    """Say what marks of a text mean, by default those of mentions whose truth is known."""
    said = [
        join([element("span", MARKS[kind].title, class_=kind), f" {MARKS[kind].meaning}"])
        for kind in kinds or ("grounded", "hallucinated")
    ]
    return element("p", join(said, ", "), ".", class_="muted")
