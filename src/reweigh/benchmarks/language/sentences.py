"""Sentence boundaries by rule, for when Punkt's data are not installed.

Word tokens depend on sentences in one way only: the last full stop of a sentence becomes its own token, and
any other stays glued to its word. So only full stops before white space matter: they end a sentence
unless they belong to an abbreviation, an initial, or a number that runs on in lower case.
"""

from __future__ import annotations

import re

_STOP = re.compile(r"""\.[\])}>"'»”’]*(?P<gap>\s+)(?=\S)""")
_STRAY_CLOSING = re.compile(r"""["')\]}]+(?=\s|--|$)\s*""")
_LAST_WORD = re.compile(r"\S*$")
_NEXT_WORD = re.compile(r"\S{1,40}")
_NEAR = 40  # no abbreviation is longer; the bound keeps texts without blanks linear

# fmt: off
_ABBREVIATIONS = frozenset({
    "a.m", "adm", "aug", "ave", "bros", "capt", "cmdr", "co", "col", "corp", "d.c", "dec", "dr", "feb",
    "ft", "gen", "gov", "i.e", "inc", "jan", "jr", "lt", "ltd", "maj", "messrs", "mr", "mrs", "ms",
    "nov", "oct", "p.m", "ph.d", "prof", "rep", "rev", "sen", "sept", "sgt", "sr", "st", "u.k", "u.s",
    "v", "vs",
})
_OPENERS = frozenset({
    "A", "An", "And", "At", "But", "He", "I", "In", "It", "On", "She", "The", "There", "These", "They",
    "This", "To", "We",
})
# fmt: on
_INITIAL = re.compile(r"[A-Z]\.?")


def split_sentences(text: str) -> list[str]:
    """Split a text at full stops that end a sentence.

    Example:
        >>> split_sentences("a man sits. mr. smith eats 2. dogs at 5 p.m. today.")
        ['a man sits.', 'mr. smith eats 2. dogs at 5 p.m. today.']
    """
    sentences = []
    start = 0
    for stop in _STOP.finditer(text):
        before = text[max(start, stop.start() - _NEAR) : stop.start()]
        after = _NEXT_WORD.match(text, stop.end())
        if after and _ends_sentence(_LAST_WORD.findall(before)[0], after.group()):
            # Closing marks that stand alone after the stop still belong to its sentence, as in Punkt.
            stray = _STRAY_CLOSING.match(text, stop.end())
            sentences.append(text[start : stray.end() if stray else stop.start("gap")].rstrip())
            start = stray.end() if stray else stop.end()
    sentences.append(text[start:])
    return sentences


def _ends_sentence(word: str, following: str) -> bool:
    bare = word.lstrip("([{<\"'«“‘`")
    if bare.lower() in _ABBREVIATIONS:
        return following in _OPENERS
    if _INITIAL.fullmatch(bare) and following.endswith("."):
        return False
    runs_on = following[0].islower()
    return not (runs_on and (bare.isdecimal() or (len(bare) == 1 and bare.isalpha())))
