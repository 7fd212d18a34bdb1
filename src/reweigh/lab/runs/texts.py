"""What no figure shows: texts that stop in the middle, are empty, or are the base's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reweigh.lab.tasks.types import Id

WORDS = 4
"""Shorter answers do not count as sentences."""
UNFINISHED = 0.10
"""A larger share of unfinished texts is reported."""
ENDS = (".", "!", "?", '"', ")")


def unfinished(texts: Sequence[str]) -> float:
    """Return the share of texts that do not end as a sentence does; one-word answers do not count."""
    long = [text.strip() for text in texts if len(text.split()) >= WORDS]
    return sum(not text.endswith(ENDS) for text in long) / len(long) if long else 0.0


def empty(texts: Sequence[str]) -> float:
    """Return the share of empty texts.

    >>> empty(["A dog.", " "])
    0.5
    """
    return sum(not text.strip() for text in texts) / len(texts) if texts else 0.0


def unchanged(texts: Mapping[Id, str], base: Mapping[Id, str]) -> float:
    """Return the share of texts that are exactly those of the base.

    >>> unchanged({1: "A dog.", 2: "A cat."}, {1: "A dog.", 2: "A bus."})
    0.5
    """
    return sum(text == base.get(one) for one, text in texts.items()) / len(texts) if texts else 0.0


def warnings_about(named: Mapping[str, Sequence[str]], where: str = "") -> list[str]:
    """Warn about unfinished and empty texts of some runs, by title; the share is absolute, whatever the others do.

    >>> warnings_about({"Base": ["a dog on the", "a cat on the"], "VCD": [""]})
    ['Unfinished texts: Base 100%. If the limit cuts them, raise --max-new-tokens.', 'Empty texts: VCD 100%.']
    """
    cut = {title: share for title, texts in named.items() if (share := unfinished(texts)) > UNFINISHED}
    void = {title: share for title, texts in named.items() if (share := empty(texts))}
    said = []
    if cut:
        said.append(
            f"Unfinished texts{where}: {_listed(cut)}. If the limit cuts them, raise --max-new-tokens."
        )
    if void:
        said.append(f"Empty texts{where}: {_listed(void)}.")
    return said


def _listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{title} {share:.0%}".strip() for title, share in shares.items())
