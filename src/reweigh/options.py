"""Options written as text, ``name=value``, for commands."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from reweigh.errors import InputError, require_known


def parse_option(text: str, form: str = "name=value") -> tuple[str, Any]:
    """Split an option into name and value; the value is parsed as JSON if possible, and is text otherwise.

    Example:
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


def choose_options(texts: Iterable[str], names: Collection[str], kind: str) -> dict[str, Any]:
    """Parse options that take only certain names; an unknown one suggests the nearest.

    Example:
        >>> choose_options(["dtype=float32"], ["dtype", "device"], "model option")
        {'dtype': 'float32'}
    """
    found = parse_options(texts)
    require_known(kind, found, names)
    return found
