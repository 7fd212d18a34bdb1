"""Options written as text, ``name=value``, as commands take them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from reweigh.errors import InputError


def parse_option(text: str, form: str = "name=value") -> tuple[str, Any]:
    """Split one option into its name and its value, which is JSON if it can be and text otherwise.

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
    """Read several options; a dash in a name stands for an underscore, and the last of a name wins."""
    return {name.replace("-", "_"): value for name, value in map(parse_option, texts)}
