"""How objects show themselves in a notebook: a small table of escaped text, without styles of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def facts(title: str, values: Mapping[str, object]) -> str:
    """A two-column table of names and values.

    Example:
        >>> facts("ReWEIGH", {"beta": 1.1})
        '<table><caption>ReWEIGH</caption><tr><th scope="row">beta</th><td>1.1</td></tr></table>'
    """
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in values.items()
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(rows)}</table>"


def grid(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a head."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"
