"""Markup from templates: every face of a page and of a table is a jinja2 template of this package.

``Html`` is the only kind of string that enters a page as markup; any other string is escaped. Nothing here loads a
script, a font or a style from elsewhere.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from reweigh.marks import MARKS, Kind

if TYPE_CHECKING:
    from jinja2 import Environment
    from PIL.Image import Image

Html = Markup
PARTS = "parts.html"


@cache
def templates() -> Environment:
    """Return the templates; those of HTML escape whatever is not markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("reweigh.lab.views"),
        autoescape=select_autoescape(disabled_extensions=("md", "tex"), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"pipe": pipe, "tex": tex}
    return environment


def render(name: str, **values: Any) -> str:
    """Fill in a template."""
    return templates().get_template(name).render(**values)


def part(name: str, *values: Any) -> Html:
    """Return a part of a page: a macro of ``parts.html``."""
    return Html(getattr(templates().get_template(PARTS).module, name)(*values))


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
    return part("picture", f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode('ascii')}", alt)


def legend(*kinds: Kind) -> Html:
    """Say what marks of a text mean, by default those of mentions whose truth is known."""
    return part("legend", [(kind, MARKS[kind]) for kind in kinds or ("grounded", "hallucinated")])


def pipe(text: str) -> str:
    """Escape what would end a cell of a Markdown table, or begin markup."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "×": r"$\times$",
    "–": "--",
    **{letter: "\\" + letter for letter in "&%$#_{}"},
}


def tex(text: str) -> str:
    """Escape LaTeX's special characters; CHAIR_S and CHAIR_I get their subscripts."""
    escaped = "".join(_TEX.get(letter, letter) for letter in text)
    return re.sub(r"\b(CHAIR)\\_([SI])\b", r"\1$_\2$", escaped)
