"""Text that every part shares: the default prompt, and what makes any string fit for a file."""

from __future__ import annotations

from collections.abc import Mapping

DESCRIBE = "Please describe this image in detail."
"""The paper's prompt for calibration and CHAIR, and the default wherever an image is described."""


def replace_surrogates(text: str) -> str:
    """Replace lone halves of surrogate pairs by ``?``.

    A byte-level tokenizer or a JSON escape can leave one, and no UTF-8 file or request can carry it.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def escape_bytes(name: str) -> str:
    """A file name as text: bytes of it that are no UTF-8 are written out.

    Example:
        >>> escape_bytes("caf\\udce9.png")
        'caf\\\\udce9.png'
    """
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def in_words(value: object) -> str:
    """A value as a person would write it: lists and dictionaries without brackets, flags as yes and no.

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
