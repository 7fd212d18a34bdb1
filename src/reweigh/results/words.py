"""Which words differ between two texts, as spans to colour."""

from __future__ import annotations

import difflib
import re

from reweigh.results.coloured import Span


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
