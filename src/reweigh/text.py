"""Text helpers: the default prompt, strings that are safe for a file, and small tables for notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

DESCRIBE = "Please describe this image in detail."
"""The paper's prompt for calibration and CHAIR, and the default wherever an image is described."""

Template = str | Mapping[str, Any]
"""How a prompt becomes a text: a text with ``{prompt}`` and the family's image placeholder, used instead of the chat
template, or arguments for the chat template, e.g. ``{"enable_thinking": False}``."""


FUNCTION_WORDS = frozenset(
    """
    a about above across after again against all along also although always am among an and another any anyone appear
    appears are around as at away be because been before behind being below beneath beside besides between beyond both
    but by can cannot close could creating depict depicts did do does down during each either enough even every few for
    from front further had has have having he her here hers him his how however if in including inside instead into is
    it its itself just large left less likely little made main many may me might mine more most much must my near nearby
    neither next no nor not nothing of off on once one only onto or other others our out outside over overall own
    perhaps please possibly quite rather right same seem seems seen several shall she should show shows side since small
    so some someone something still such than that the their theirs them then there these they this those three through
    throughout to together too toward towards two under until up upon us various very was we well were what when where
    whether which while who whom whose why will with within without would yet you your
    """.split()  # noqa: SIM905  # a paragraph reads better than a column of quotes
)
"""Words that name nothing a picture could show: articles, prepositions, pronouns, small numbers, words of place."""
NEVER_JUDGED = FUNCTION_WORDS | {"image", "images", "photo", "photograph", "picture", "pictures"}
"""Function words, and words for the picture itself, as in "The image shows"."""


def may_name(word: str) -> bool:
    """Whether a word could name something a picture shows: it has a letter and is not in `NEVER_JUDGED`.

    >>> [may_name(word) for word in ("sofa.", "The", "dog's", "3,", "image")]
    [True, False, True, False, False]
    """
    letters = [place for place, character in enumerate(word) if character.isalpha()]
    return bool(letters) and word[letters[0] : letters[-1] + 1].lower() not in NEVER_JUDGED


THINKING = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<|channel>thought", "<channel|>"))
"""The marks around what a model thinks before it answers."""


def split_thinking(text: str) -> tuple[str, str]:
    """Return what a model thinks, and what it answers; a text without marks is all answer.

    The opening mark may stand in the prompt. Thinking that was cut off has no answer.

    Examples:
        >>> split_thinking("<think>A cat? No, a dog.</think> A dog.")
        ('A cat? No, a dog.', 'A dog.')
    """
    thoughts, answer = [], text
    for opening, closing in THINKING:
        while closing in answer:
            before, _, after = answer.partition(closing)
            said, opened, thought = before.partition(opening)
            thoughts.append(thought if opened else said)
            answer = (said if opened else "") + after
        if opening in answer:
            answer, _, thought = answer.partition(opening)
            thoughts.append(thought)
    return "\n".join(thought.strip() for thought in thoughts), answer.strip() if thoughts else text


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates with ``?``.

    A byte-level tokenizer or a JSON escape can produce one, and UTF-8 cannot encode it.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def escape_bytes(name: str) -> str:
    """Return a file name as text; bytes that are not UTF-8 are escaped.

    Examples:
        >>> escape_bytes("caf\\udce9.png")
        'caf\\\\udce9.png'
    """
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


UNFINISHED = "\ufffd"
"""Stands at the end of a text whose last character needs further tokens."""


def shortened(names: Sequence[str], count: int = 5) -> str:
    """List some names, and say how many more there are.

    Examples:
        >>> shortened(["a.jpg", "b.jpg", "c.jpg"], 2)
        'a.jpg, b.jpg and 1 more'
    """
    more = len(names) - count
    return ", ".join(names[:count]) + (f" and {more} more" if more > 0 else "")


def whole_sentences(text: str) -> str:
    """Return a text without a last sentence that does not end.

    Examples:
        >>> whole_sentences('A dog runs. "It barks." A cat sits on the')
        'A dog runs. "It barks."'
        >>> whole_sentences("A cat sits on the")
        ''
    """
    ends = [found.end() for found in re.finditer(r"[.!?][\"')\]]*(?=\s|$)", text)]
    return text[: ends[-1]] if ends else ""


def token_ends(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Return for each token the length of the text once it is emitted, without outer blanks."""
    whole = decode(tokens)
    blank = len(whole) - len(whole.lstrip())
    ends: list[int] = []
    for stop in range(1, len(tokens) + 1):
        said = len(decode(tokens[:stop]).rstrip(UNFINISHED)) - blank
        ends.append(max(said, ends[-1] if ends else 0))
    return ends


def in_words(value: object) -> str:
    """Return a value in plain words: lists and dictionaries without brackets, booleans as yes and no.

    >>> in_words({"layers": [1, 2], "equal": True, "ratio": None})
    'layers 1, 2, equal yes, ratio –'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else str(value)


def facts(title: str, values: Mapping[str, object]) -> str:
    """Return an HTML table of names and values, as notebooks show an object.

    Examples:
        >>> facts("ReWEIGH", {"beta": 1.1})
        '<table><caption>ReWEIGH</caption><tr><th scope="row">beta</th><td>1.1</td></tr></table>'
    """
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in values.items()
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(rows)}</table>"


def grid(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with a header row, as notebooks show an object."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"
