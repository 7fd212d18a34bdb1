"""Examples on a page: a response with its mentions in colour, its image, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Id, Item
from reweigh.errors import ReweighError
from reweigh.results import coloured
from reweigh.results.coloured import Span
from reweigh.results.html import Html, card, element, legend, picture, section

EXAMPLES = 12
LONGEST = 6000
FindImage = Callable[[Id], Path | None]
"""From an item's id to its image file, or None if it is not found."""


def coloured_response(item: Item, text: str) -> Html:
    """A response with its mentions in colour; the end of a very long one is left out."""
    start = text[:LONGEST]
    rest = f" … ({len(text) - len(start):,} more characters)" if len(start) < len(text) else ""
    return element("p", coloured.html(start, mention_spans(item, start)), rest, class_="said")


def titled_response(title: str, item: Item, text: str, *more: str) -> Html:
    """One of several responses to the same record, under the name of who wrote it."""
    return element("div", element("h4", title), coloured_response(item, text), *more)


def mention_spans(item: Item, text: str) -> list[Span]:
    """The mentions of an item as coloured spans; those outside the text are left out."""
    spans = []
    for mention in item.details.get("mentions", []):
        start, end = mention.get("start"), mention.get("end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text):
            kind: coloured.Kind = "hallucinated" if mention["hallucinated"] else "grounded"
            spans.append(Span(start, end, kind, str(mention.get("object", mention.get("word", "")))))
    return spans


def thumbnail(path: Path | None, item: Item | None = None) -> Html | None:
    """A small embedded picture, described by what its annotations list; None where no file can be read."""
    from reweigh.images import read_image

    if path is None:
        return None
    try:
        return picture(read_image(path), alt=_in_words(path, item), max_side=320, kind="JPEG")
    except ReweighError:
        return None


def _in_words(path: Path, item: Item | None) -> str:
    there = None if item is None else item.details.get("reference")
    if isinstance(there, list) and there:
        return f"The described image, {path.name}: {', '.join(map(str, there))}"
    return f"The described image, {path.name}"


def example_section(
    items: Sequence[Item], texts: Mapping[Id, str], find: FindImage, prompts: Mapping[Id, str]
) -> Html:
    """The worst responses and some without faults, with their images where these are found."""
    chosen = _choose(items)
    if not chosen:
        return section("Examples", element("p", "There are no responses.", class_="muted"))
    # A prompt that all examples share is not repeated in each of them.
    differing = prompts if len(set(prompts.values())) > 1 else {}
    cards = [
        _card(item, texts.get(item.id, str(item.details.get("response", ""))), find, differing.get(item.id))
        for item in chosen
    ]
    intro = legend() if any("mentions" in item.details for item in chosen) else Html("")
    note = element("p", "The worst first, then some without any fault.", class_="muted")
    return section("Examples", intro, note, *cards)


def fault(item: Item) -> float:
    """How much is wrong with a response: hallucinated mentions, or 1 for a wrong or badly judged answer."""
    details = item.details
    if "mentions" in details:
        return float(sum(bool(mention["hallucinated"]) for mention in details["mentions"]))
    if "correct" in details:
        return float(not details["correct"])
    score = details.get("score")
    return -float(score) if score is not None and details.get("parsed", True) else 1.0


def _choose(items: Sequence[Item]) -> list[Item]:
    """Two thirds of the examples are the worst items, one third the best; the order does not depend on chance."""
    ranked = sorted(items, key=lambda item: (-fault(item), str(item.id)))
    worst = ranked[: EXAMPLES * 2 // 3]
    best = [item for item in reversed(ranked) if item not in worst][: EXAMPLES - len(worst)]
    return [*worst, *best]


def _card(item: Item, text: str, find: FindImage, prompt: str | None) -> Html:
    small = thumbnail(find(item.id), item)
    body = [element("h3", f"{item.id}")]
    details = item.details
    if question := details.get("question", prompt):
        body.append(element("p", element("b", "Question: "), str(question)))
    body.append(coloured_response(item, text))
    body += [element("p", line, class_="muted") for line in _notes(details)]
    if reply := details.get("reply") or details.get("replies"):
        body.append(element("details", element("summary", "judge"), element("p", str(reply), class_="said")))
    return card(small, *body)


def _notes(details: Mapping[str, Any]) -> list[str]:
    notes = []
    if missed := details.get("missed"):
        notes.append("not mentioned: " + ", ".join(map(str, missed)))
    if "correct" in details:
        truth = details.get("truth", details.get("label"))
        notes.append(f"truth {truth}, read as {details.get('answer') or 'neither'}")
    if "score" in details:
        notes.append(
            f"score {details['score']}" + ("" if details.get("parsed", True) else " (reply not readable)")
        )
    if isinstance(found := details.get("probabilities"), Mapping):
        likely = ", ".join(f"{level}: {p:.0%}" for level, p in found.items() if p >= 0.005)
        notes.append(f"expected {details['expected']:.2f} ({likely})")
    if isinstance(details.get("reference"), str):
        notes.append(f"reference: {details['reference']}")
    return notes
