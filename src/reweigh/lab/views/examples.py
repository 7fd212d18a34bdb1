"""Examples: responses with their mentions in color, on a page beside their image, or in the terminal.

A span is a half-open range of characters with a kind; where spans overlap the earlier one wins, so that every character
has at most one color. Knows nothing of how mentions were found.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from reweigh.errors import InputError, ReweighError
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.base import Id, Item
from reweigh.lab.views.html import Html, legend, part, picture
from reweigh.lab.views.page import Page
from reweigh.marks import MARKS, Kind

if TYPE_CHECKING:
    from rich.text import Text

EXAMPLES = 12
LONGEST = 6000
OPEN = 6
"""Number of responses that a card shows; the others are folded away."""
FindImage = Callable[[Id], Path | None]
"""From an item's id to its image file, or None if it is not found."""
AnyId = TypeVar("AnyId", bound=Id)


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


def colored_html(text: str, spans: Iterable[Span]) -> Html:
    """Return the text as markup, mentions in color."""
    return part("colored", list(pieces(text, spans)))


def colored_text(text: str, spans: Iterable[Span]) -> Text:
    """Return the text for a rich console, mentions in color."""
    from rich.text import Text

    shown = Text()
    for run, span in pieces(text, spans):
        shown.append(run, style="" if span is None else MARKS[span.kind].terminal)
    return shown


def changed_words(before: str, after: str) -> tuple[list[Span], list[Span]]:
    """Return spans of the words only the first text has, and of those only the second has."""
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


def mention_spans(item: Item, text: str) -> list[Span]:
    """Return the mentions of an item as colored spans; those outside the text are left out."""
    spans = []
    for mention in item.details.get("mentions", []):
        start, end = mention.get("start"), mention.get("end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text):
            kind: Kind = "hallucinated" if mention["hallucinated"] else "grounded"
            spans.append(Span(start, end, kind, str(mention.get("object", mention.get("word", "")))))
    return spans


def answer(run: Scored, identity: Id) -> tuple[Item, str]:
    """Return what was counted in an answer of a run, and its text."""
    item = next(item for item in run.items if item.id == identity)
    return item, run.texts.get(identity, "")


def response(run: Scored, identity: Id, *, title: str = "") -> Html:
    """Return an answer with its mentions in color, under the name of who wrote it; a very long one is cut."""
    item, text = answer(run, identity)
    start = text[:LONGEST]
    rest = f" … ({len(text) - len(start):,} more characters)" if len(start) < len(text) else ""
    return part("response", title, colored_html(start, mention_spans(item, start)), rest)


def example(
    identity: Id,
    sides: Sequence[tuple[str, Scored]],
    image: Path | None,
    *notes: str,
    title: str = "",
    question: str = "",
) -> Html:
    """Return a card of one record: the answers of all runs beside its image, if there is one, and notes below.

    ``sides`` are the runs with their titles; a single run needs none.
    """
    said = [response(run, identity, title=name) for name, run in sides]
    small = thumbnail(image, answer(sides[0][1], identity)[0])
    return part("example", title or f"{identity}", small, question, said[:OPEN], said[OPEN:], notes)


def thumbnail(path: Path | None, item: Item) -> Html | None:
    """Return a small embedded picture, described by what its annotations list; None if no file can be read."""
    from reweigh.images import read_image

    if path is None:
        return None
    there = item.details.get("reference")
    listed = f": {', '.join(map(str, there))}" if isinstance(there, list) and there else ""
    try:
        small = read_image(path)
    except ReweighError:
        return None
    return picture(small, alt=f"The described image, {path.name}{listed}", max_side=320, kind="JPEG")


def add_examples(page: Page, run: Scored, find: FindImage) -> None:
    """Add a section with the worst responses of a run and some of the best."""
    page.section("Examples")
    if not run.items:
        page.text("There are no responses.", muted=True)
        return
    ranked = sorted(run.items, key=lambda item: (-fault(item), str(item.id)))
    worst = ranked[: EXAMPLES * 2 // 3]
    best = [item for item in reversed(ranked) if item not in worst][: EXAMPLES - len(worst)]
    if any("mentions" in item.details for item in [*worst, *best]):
        page.add(legend())
    page.text("The worst first, then some of the best." if best else "The worst first.", muted=True)
    prompts = {row["id"]: row["prompt"] for row in run.questions}
    if len(set(prompts.values())) == 1:  # not repeated in each example
        prompts = {}
    for item in [*worst, *best]:
        question = str(item.details.get("question") or prompts.get(item.id) or "")
        notes = _notes(item.details)
        page.add(example(item.id, [("", run)], find(item.id), *notes, question=question))


def highest(scores: Mapping[AnyId, float]) -> list[AnyId]:
    """Return the records with a score above zero, the highest first; ties by id, numbers before names."""
    found = [(-score, isinstance(one, str), one) for one, score in scores.items() if score > 0]
    return [one for *_, one in sorted(found)]


def fault(item: Item) -> float:
    """Return how much is wrong with a response: hallucinated mentions, or 1 for a wrong or badly judged answer."""
    details = item.details
    if "mentions" in details:
        return float(sum(bool(mention["hallucinated"]) for mention in details["mentions"]))
    if "correct" in details:
        return float(not details["correct"])
    score = details.get("score")
    return -float(score) if score is not None and details.get("parsed", True) else 1.0


def _notes(details: Mapping[str, Any]) -> list[str]:
    """Say what the scorer found."""
    notes = []
    if missed := details.get("missed"):
        notes.append("not mentioned: " + ", ".join(map(str, missed)))
    if "correct" in details:
        truth = details.get("truth", details.get("label"))
        notes.append(f"truth {truth}, read as {details.get('answer') or 'neither'}")
    if "score" in details:
        unread = "" if details.get("parsed", True) else " (reply not readable)"
        notes.append(f"score {details['score']}{unread}")
    if isinstance(found := details.get("probabilities"), Mapping):
        likely = ", ".join(f"{level}: {p:.0%}" for level, p in found.items() if p >= 0.005)
        notes.append(f"expected {details['expected']:.2f} ({likely})")
    if isinstance(details.get("reference"), str):
        notes.append(f"reference: {details['reference']}")
    if reply := details.get("reply") or details.get("replies"):
        notes.append(f"judge: {reply}")
    return notes
