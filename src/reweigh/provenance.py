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
    """Return the versions of this package and of the named packages, if installed."""
    found = {"reweigh": __version__}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def versions() -> dict[str, str]:
    """Return the versions that a table's numbers depend on."""
    return {**package_versions(("torch", "transformers", "numpy")), "python": platform.python_version()}


def environment() -> dict[str, Any]:
    """Return Python, machine and packages, as runs record them."""
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


def first_difference(first: Any, second: Any, *, ignore: Collection[str] = ()) -> RecordDifference | None:
    """Find the first key, in sorted order, at which two nested records differ; None if they agree.

    Examples:
        >>> first_difference({"a": {"b": 1}}, {"a": {"b": 2}})
        RecordDifference(key='a.b', first=1, second=2)
    """
    return next(record_differences(first, second, ignore=ignore), None)


def record_differences(
    first: Any, second: Any, *, ignore: Collection[str] = (), key: str = ""
) -> Iterator[RecordDifference]:
    """Yield all keys at which two nested records differ, in sorted order.

    A key that one record lacks equals None or an empty mapping in the other.

    Args:
        first: One record.
        second: The other.
        ignore: Dotted keys that may differ, with everything below them.
        key: Where the two are in the records being compared.
    """
    if first is None and isinstance(second, Mapping):
        first = {}
    if second is None and isinstance(first, Mapping):
        second = {}
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        if first != second:
            yield RecordDifference(key, first, second)
        return
    for name in sorted({*first, *second}):
        below = f"{key}.{name}" if key else str(name)
        if below not in ignore:
            yield from record_differences(first.get(name), second.get(name), ignore=ignore, key=below)
