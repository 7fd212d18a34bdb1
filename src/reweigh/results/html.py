"""Self-contained HTML pages: one skeleton, escaped text, embedded pictures, light and dark.

``Html`` is the only kind of string that enters a page as markup; any other string is escaped. Nothing here
loads a script, a font or a style from elsewhere. It does not know what the pages are about.
"""

from __future__ import annotations

import base64
import html as escaping
from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from PIL.Image import Image


class Html(str):
    """Markup that is safe to put into a page as it is."""

    __slots__ = ()


VOID = frozenset({"br", "hr", "img", "input", "meta"})

STYLE = """
:root { color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1d232b; --muted: #68727f; --line: #e3e0d8;
  --good: #1f5fbf; --good-wash: #e2ecfb; --bad: #c2282d; --bad-wash: #fde5e3;
  --mark: #8a5a00; --mark-wash: #fdf0d0; --one: #009e73; --two: #7a3e9d; --three: #5d6b00; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171c; --card: #1c2027; --ink: #e4e7eb; --muted: #97a1ae; --line: #313843;
  --good: #86b4ff; --good-wash: #1d3358; --bad: #ff8f88; --bad-wash: #552125;
  --mark: #f0c264; --mark-wash: #463714; --one: #56c8bb; --two: #cf9df0; --three: #c3d35a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .7rem; }
h3 { font-size: 1rem; margin: 0 0 .5rem; }
p { margin: .4rem 0; }
.lead { color: var(--muted); margin-bottom: 1.6rem; }
.muted, figcaption, caption { color: var(--muted); font-size: .86rem; }
body { --ground: var(--paper); } .card { --ground: var(--card); }
.scroll, figure { overflow-x: auto; background:
  linear-gradient(to right, var(--ground) 30%, transparent) 0 0 / 2.5rem 100% local,
  linear-gradient(to left, var(--ground) 30%, transparent) 100% 0 / 2.5rem 100% local,
  radial-gradient(farthest-side at 0 50%, var(--muted), transparent) 0 0 / .7rem 100% scroll,
  radial-gradient(farthest-side at 100% 50%, var(--muted), transparent) 100% 0 / .7rem 100% scroll;
  background-repeat: no-repeat; }
.scroll th:first-child, .scroll td:first-child { position: sticky; left: 0; background: var(--ground); z-index: 1; }
.scroll { scrollbar-width: thin; scrollbar-color: var(--muted) var(--line); padding-bottom: .3rem; }
tbody th { font-weight: 400; color: var(--ink); }
.scale { display: flex; align-items: center; gap: .5rem; } .scale i { flex: 1; max-width: 10rem; height: .6rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; padding-top: .6rem; }
th, td { padding: .5rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-size: .84rem; color: var(--muted); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
th.words, td.words { text-align: left; white-space: pre-line; }
td.best, th.best { font-weight: 700; } td u { text-underline-offset: .25em; }
.better, .better-strong { background: var(--good-wash); } .worse, .worse-strong { background: var(--bad-wash); }
span.better, span.worse { padding: .05em .3em; border-radius: .25em; color: var(--ink); }
th.group { text-align: center; }
.range { color: var(--muted); font-size: .84rem; margin-left: .35em; font-weight: 400; }
.stacked .range { display: block; margin-left: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .9rem;
  margin: 1.2rem 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: .7rem;
  padding: 1rem 1.1rem; }
.tile b { display: block; font-size: 1.7rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tile .name { color: var(--muted); font-size: .84rem; }
.card { margin: .9rem 0; }
.card.example { display: grid; grid-template-columns: minmax(0, 12rem) minmax(0, 1fr); gap: 1.1rem; }
.card.example.plain { grid-template-columns: minmax(0, 1fr); }
.card img { max-width: 100%; max-height: 12rem; height: auto; border-radius: .4rem; display: block; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1.2rem; }
.said { white-space: pre-wrap; overflow-wrap: anywhere; }
.grounded, .hallucinated, .changed { border-radius: .25em; padding: .05em .2em; }
.grounded { color: var(--good); background: var(--good-wash); }
.hallucinated { color: var(--bad); background: var(--bad-wash);
  text-decoration: underline wavy 1px; text-underline-offset: .2em; }
.changed { color: var(--mark); background: var(--mark-wash); }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
details > summary { cursor: pointer; color: var(--muted); }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; } .narrow { display: none; }
.contents { columns: 2 22rem; column-gap: 2rem; } .contents h2 { column-span: all; margin-top: 1rem; }
.contents ol { margin: 0; padding-left: 1.6rem; } .contents li { break-inside: avoid; padding-right: .5rem; }
a { color: inherit; text-underline-offset: .2em; } a:hover { color: var(--mark); }
img.drawing { width: 100%; max-width: 48rem; height: auto; background: #ffffff; border-radius: .4rem;
  padding: .4rem; display: block; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line);
  color: var(--muted); font-size: .84rem; }
@media (max-width: 36rem) {
  main { padding: 1.4rem .9rem 3rem; } h1 { font-size: 1.5rem; }
  th, td { padding: .35rem .5rem; font-size: .84rem; }
  .wide { display: none; } .narrow { display: block; }
  .scroll caption { position: sticky; left: 0; width: calc(100vw - 2.2rem); }
  .scroll tbody th:first-child { max-width: 45vw; white-space: normal; overflow-wrap: break-word; }
  .named tbody th:first-child { min-width: 7.5rem; } .range { display: block; margin-left: 0; }
  figure > svg { max-width: none; } img.drawing { min-width: 32rem; }
  .card.example { grid-template-columns: minmax(0, 1fr); } }
@media print {
  :root { color-scheme: light; --paper: #ffffff; --card: #ffffff; --ink: #000000; --muted: #444444; --line: #bbbbbb;
    --good: #1f5fbf; --good-wash: #ffffff; --bad: #c2282d; --bad-wash: #ffffff; --mark: #8a5a00; --mark-wash: #ffffff; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .scroll { overflow: visible; } .range { font-size: 7pt; }
  th, td { white-space: normal; padding: .15rem .35rem; font-size: 8pt; }
  h2, h3 { break-after: avoid; } figure, .card, .tile, tr { break-inside: avoid; } thead { display: table-header-group; }
  details::details-content { content-visibility: visible; display: block; } }
"""


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
            element("style", Html(STYLE)),
        ]
    )
    parts = [element("h1", title)]
    if lead:
        parts.append(element("p", lead, class_="lead"))
    closing = [element("footer", footer)] if footer else []
    main = element("main", *parts, *body, *closing)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{main}</body></html>\n'
