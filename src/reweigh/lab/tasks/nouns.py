"""Nouns that a vocabulary lacks: what texts name but nobody counts. No language toolkit, so it is a hint, not a measure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPENING = _words(
    "a an the this that these those some several many few two three four five six seven eight nine ten another its his her "
    "their"
)
"""Words that open a noun phrase."""
CLOSING = _words(
    "is are was were be been being has have had can could may might will would do does and or but nor so as while which who "
    "where when with of in on at by for from to into onto over under near behind above below beside between through across "
    "around along against inside outside up down off out not also very too "
    "stands sits lies looks seems appears shows contains includes features runs walks holds wears hangs rests adds stand "
    "sit lie look seem appear show contain include run walk hold wear hang rest"
)
"""Words that end one."""
PLACES = _words(
    "image picture photo photograph scene background foreground left right side center middle top bottom front back "
    "distance corner edge number group variety couple pair lot row"
)
"""Nouns that say where or how many, but name no object."""
WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*|[^\s\w]")


def nouns(text: str) -> list[str]:
    """Return the last two words of each noun phrase that an article or a number opens.

    Examples:
        >>> nouns("A red train is on the tracks, and two men riding bikes pass a traffic light.")
        ['red train', 'tracks', 'men', 'traffic light']
    """
    found, words = [], WORD.findall(text.lower())
    for place, word in enumerate(words):
        if word not in OPENING:
            continue
        phrase: list[str] = []
        for one in words[place + 1 :]:
            ends = one in CLOSING or one in OPENING or not one[0].isalpha()
            if ends or (phrase and one.endswith("ing")):
                break
            phrase.append(one)
        if phrase:
            found.append(" ".join(phrase[-2:]))
    return found


def outside(texts: Sequence[str], known: Callable[[str], bool], count: int = 8) -> list[tuple[str, int]]:
    """Return the most frequent nouns of some texts that are not known, with the number of texts that have each.

    Examples:
        >>> outside(["A train and a dog.", "The train is red."], {"dog"}.__contains__)
        [('train', 2)]
    """
    seen: Counter[str] = Counter()
    for text in texts:
        heads = {phrase.split()[-1] for phrase in nouns(text) if not known(phrase)}
        seen.update(head for head in heads if head not in PLACES and not known(head))
    return sorted(seen.items(), key=lambda one: (-one[1], one[0]))[:count]
