"""Which words of a text may name a thing, without a tagger: those of a list, or every word that is not a function word.

A stand-in for a noun test; methods that need one take a callable ``is_entity(word)``, or words, in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from reweigh.errors import InputError
from reweigh.text import FUNCTION_WORDS


def may_be_entity(word: str) -> bool:
    """Whether a word has at least three letters and is not a function word."""
    plain = word.lower()
    return len(plain) >= 3 and plain.isalpha() and plain not in FUNCTION_WORDS


def word_list(name: str, given: Sequence[str] | str | Path) -> tuple[str, ...]:
    """The words of an option: a list of them, or a file with one to a line."""
    if isinstance(given, str | Path):
        try:
            given = Path(given).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{name} is {str(given)!r}, neither a list of words nor a file of them that can be read ({error})",
                hint=f'{name}=["dog", "frisbee"], or a file with one word to a line',
            ) from error
        given = [word for word in given if word.strip()]
    elif not isinstance(given, Iterable):
        raise InputError(f"{name} is {given!r}, not a list of words", hint=f'{name}=["dog", "frisbee"]')
    given = list(given)
    if not all(isinstance(word, str) and word.strip() for word in given):
        raise InputError(f"{name} is {given!r}, not a list of words", hint=f'{name}=["dog", "frisbee"]')
    return tuple(word.strip() for word in given)


def entity_test(given: Callable[[str], bool] | Sequence[str] | str | Path) -> Callable[[str], bool]:
    """A noun test: a function as it is, or whether a word is among the given ones, ignoring a final "s"."""
    if callable(given):
        return given
    known = {singular(word) for word in word_list("is_entity", given)}
    return lambda word: singular(word) in known


def singular(word: str) -> str:
    """A word in lower case without any final "s", so that it is the same after one was taken off."""
    return word.lower().rstrip("s")
