"""Options written as text, ``name=value``, for commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reweigh.errors import InputError, require_known

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
"""What a value must be, by its type."""


def require_kind(what: str, value: Any, kind: type) -> None:
    """Refuse a value of another type; a whole number is also a number.

    Examples:
        >>> require_kind("beta", 2, float)
    """
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise InputError(f"{what} must be {WORDS[kind]}, not {value!r}")


def parse_option(text: str, form: str = "name=value") -> tuple[str, Any]:
    """Split an option into name and value; the value is parsed as JSON if possible, and is text otherwise.

    Examples:
        >>> parse_option("beta=1.1"), parse_option("split=tuning")
        (('beta', 1.1), ('split', 'tuning'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"the option {text!r} is not of the form {form}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parse_options(texts: Iterable[str]) -> dict[str, Any]:
    """Parse several options; dashes in names become underscores, and the last value of a name wins."""
    return {name.replace("-", "_"): value for name, value in map(parse_option, texts)}


def typed_options(texts: Iterable[str], kinds: Mapping[str, type], what: str) -> dict[str, Any]:
    """Parse options that have a type each; an unknown name suggests the nearest.

    Text stays as it was typed, so that a revision called 1e5 is not read as a number.

    Examples:
        >>> typed_options(["revision=1e5", "timeout=3"], {"revision": str, "timeout": float}, "option")
        {'revision': '1e5', 'timeout': 3}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, value = parse_option(text)
        name = name.replace("-", "_")
        require_known(what, [name], kinds)
        kind = kinds[name]
        if kind in (str, Path):
            value = kind(text.partition("=")[2])
        else:
            require_kind(f"the {what} {name}", value, kind)
        found[name] = value
    return found
