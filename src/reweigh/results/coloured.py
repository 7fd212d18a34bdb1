"""Text with coloured mentions, for pages and for the terminal.

A span is a half-open range of characters with a kind; where spans overlap the earlier one wins, so that every
character has at most one colour. Knows nothing of how mentions were found.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from reweigh.errors import InputError
from reweigh.results.html import Html, element, join

if TYPE_CHECKING:
    from rich.text import Text

Kind = Literal["grounded", "hallucinated", "changed", "unknown"]
TERMINAL = {"grounded": "blue", "hallucinated": "bold red", "changed": "yellow", "unknown": "dim underline"}


class Span(NamedTuple):
    """Characters ``start`` to ``end`` (exclusive) of a text, what they are, and a note shown on hovering."""

    start: int
    end: int
    kind: Kind
    note: str = ""


def pieces(text: str, spans: Iterable[Span]) -> Iterator[tuple[str, Span | None]]:
    """Cut a text into runs with and without a span; the runs put together are the text."""
    done = 0
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if not 0 <= span.start <= span.end <= len(text):
            raise InputError(f"span {span.start}:{span.end} lies outside a text of {len(text)} characters")
        start = max(span.start, done)
        if start >= span.end:
            continue
        if start > done:
            yield text[done:start], None
        yield text[start : span.end], span
        done = span.end
    if done < len(text):
        yield text[done:], None


def html(text: str, spans: Iterable[Span]) -> Html:
    """The text as markup, mentions in colour."""
    return join(
        run if span is None else element("span", run, class_=span.kind, title=span.note or None)
        for run, span in pieces(text, spans)
    )


def terminal(text: str, spans: Iterable[Span]) -> Text:
    """The text for a rich console, mentions in colour."""
    from rich.text import Text

    shown = Text()
    for run, span in pieces(text, spans):
        shown.append(run, style="" if span is None else TERMINAL[span.kind])
    return shown


def changed_words(before: str, after: str) -> tuple[list[Span], list[Span]]:
    """Spans of the words only the first text has, and of those only the second has."""
    first, second = list(re.finditer(r"\S+", before)), list(re.finditer(r"\S+", after))
    matcher = difflib.SequenceMatcher(
        None, [word.group() for word in first], [word.group() for word in second], autojunk=False
    )
    removed, added = [], []
    for kind, start, stop, other_start, other_stop in matcher.get_opcodes():
        if kind != "equal":
            removed += [Span(word.start(), word.end(), "changed") for word in first[start:stop]]
            added += [Span(word.start(), word.end(), "changed") for word in second[other_start:other_stop]]
    return removed, added
