"""What a result was computed with, and how two such records differ."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from reweigh import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pillow", "numba")
"""Packages that can influence an answer."""


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of this package and of the named packages, if installed."""
    found = {"reweigh": __version__}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def versions() -> dict[str, str]:
    """This package and what its numbers depend on, as tables record it."""
    return {**package_versions(("torch", "transformers", "numpy")), "python": platform.python_version()}


def environment() -> dict[str, Any]:
    """Python, machine and packages, as runs record them."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": package_versions(PACKAGES),
    }


class RecordDifference(NamedTuple):
    """A key in which two records differ, dotted where it is nested, and its value in each (None if absent)."""

    key: str
    first: Any
    second: Any

    @property
    def words(self) -> tuple[str, str]:
        """Both values for a message."""
        first, second = ("none" if value is None else repr(value) for value in (self.first, self.second))
        return first, second


def first_difference(
    first: Any, second: Any, *, ignore: Collection[str] = (), absent_is_none: bool = False
) -> RecordDifference | None:
    """Find the first key, in sorted order, at which two nested records differ; None if they agree.

    Args:
        first: One record.
        second: The other.
        ignore: Dotted keys that may differ, with everything below them.
        absent_is_none: Whether a key that one record lacks equals a None or an empty mapping in the other.

    Example:
        >>> first_difference({"a": {"b": 1}}, {"a": {"b": 2}})
        RecordDifference(key='a.b', first=1, second=2)
    """
    return next(record_differences(first, second, ignore=ignore, absent_is_none=absent_is_none), None)


def record_differences(
    first: Any, second: Any, *, ignore: Collection[str] = (), absent_is_none: bool = False
) -> Iterator[RecordDifference]:
    """All keys at which two nested records differ, in sorted order; see ``first_difference``."""
    return _differences(first, second, "", frozenset(ignore), absent_is_none)


def _differences(
    first: Any, second: Any, path: str, ignore: frozenset[str], absent_is_none: bool
) -> Iterator[RecordDifference]:
    if absent_is_none:
        first, second = _as_mapping(first, second), _as_mapping(second, first)
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        if first != second:
            yield RecordDifference(path, first, second)
        return
    for key in sorted({*first, *second}):
        name = f"{path}.{key}" if path else str(key)
        if name in ignore:
            continue
        one, other = first.get(key), second.get(key)
        if not absent_is_none and (key in first) != (key in second):
            yield RecordDifference(name, one, other)
        else:
            yield from _differences(one, other, name, ignore, absent_is_none)


def _as_mapping(value: Any, other: Any) -> Any:
    """An empty mapping for None where the other side is a mapping."""
    return {} if value is None and isinstance(other, Mapping) else value
