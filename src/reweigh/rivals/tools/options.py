"""Check a decoder's options, names and types, against its signature before anything is loaded or run.

A value must be of the annotated type: the text ``"False"`` from a command line would otherwise count as true.
"""

from __future__ import annotations

import difflib
import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from reweigh.engines.base import GREEDY, SAMPLING, Decoder
from reweigh.errors import InputError, require_known

KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    Path: "a path",
}


REGIME, OWN = "regime", "own"
"""The option that every decoder has, and its default: how the authors decode."""
REGIMES: Mapping[str, Mapping[str, Any]] = {"greedy": GREEDY, "sampling": SAMPLING}


def check_regime(regime: Any) -> None:
    """Refuse a regime that is not known."""
    require_known("regime", [regime], [OWN, *REGIMES])


def check_options(name: str, entry: type[Decoder], options: Mapping[str, Any]) -> None:
    """Refuse an option that a decoder does not know or whose type is wrong, and name what it takes."""
    check_regime(options.get(REGIME, OWN))
    options = {option: value for option, value in options.items() if option != REGIME}
    signature = inspect.signature(entry)
    known = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    try:
        signature.bind(None, None, **options)
    except TypeError as error:
        wrong = next((option for option in options if option not in known), None)
        near = difflib.get_close_matches(wrong, known, n=1) if wrong else []
        raise InputError(
            f"decoder {name!r} cannot be made: {error}",
            hint=(f"did you mean {near[0]}? " if near else "") + f"its options: {', '.join(known) or 'none'}",
        ) from error
    try:
        hints = get_type_hints(entry.__init__)
    except NameError:  # names that only type checkers import
        return
    for option, value in options.items():
        if option in hints and not fits(value, hints[option]):
            truth = isinstance(value, str) and value.lower() in ("true", "false")
            raise InputError(
                f"{option} of decoder {name!r} is {value!r}, but must be {kind(hints[option])}",
                hint=f"on the command line in small letters: {option}={value.lower()}" if truth else None,
            )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; types unknown here accept anything."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Callable:
        return callable(value)
    if origin is Sequence:
        listed = hasattr(value, "__len__") and hasattr(value, "__getitem__")
        if not listed or isinstance(value, str | bytes | Mapping):
            return False
        return all(fits(one, inner[0]) for one in value)
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is int:
        return isinstance(value, Integral)
    if hint is float:
        return isinstance(value, Real) and math.isfinite(value)
    try:
        return isinstance(value, hint) if isinstance(hint, type) and origin is None else True
    except TypeError:  # a protocol or a typed dictionary
        return True


def kind(hint: Any) -> str:
    """Describe an annotated type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(kind(one) for one in inner))
    if origin is Callable:
        return "a function"
    if origin is Sequence:
        return f"a list, each {kind(inner[0])}"
    if hint is type(None):
        return "none"
    return KINDS.get(hint, getattr(hint, "__name__", str(hint)))


def require_processor(name: str, processor: Any, why: str) -> None:
    """Refuse a decoder that needs a processor and was given none."""
    if processor is None:
        raise InputError(why, hint=f'decoder("{name}", model, processor)')


def word_list(name: str, given: Sequence[str] | str | Path) -> tuple[str, ...]:
    """Read the words of an option: a list, or a file with one per line."""
    hint = f'{name}=["dog", "frisbee"], or a file with one word per line'
    if isinstance(given, str | Path):
        try:
            given = Path(given).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{name} is {str(given)!r}, neither a list of words nor a readable file ({error})", hint=hint
            ) from error
        given = [word for word in given if word.strip()]
    given = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(word, str) and word.strip() for word in given):
        raise InputError(f"{name} is {given!r}, not a list of words", hint=hint)
    return tuple(word.strip() for word in given)
