"""Which words of a text may name a thing, without a tagger: every word that is not a function word.

A stand-in for a noun test; methods that need one take a callable ``is_entity(word)`` in its place.
"""

from __future__ import annotations

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


def may_be_entity(word: str) -> bool:
    """Whether a word has three letters or more and is no function word."""
    plain = word.lower()
    return len(plain) >= 3 and plain.isalpha() and plain not in FUNCTION_WORDS
