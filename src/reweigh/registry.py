"""Registries of named objects, imported on first use.

Entries are ``"module:attribute"`` strings, or the objects themselves; third parties add theirs through an
entry-point group. Knows nothing about what it holds.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from reweigh.errors import InputError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """A lazy mapping from name to object.

    Args:
        kind: What the entries are, for messages ("decoder", "benchmark").
        entries: Built-in entries, name to ``"module:attribute"`` or to the object itself.
        group: Entry-point group searched for names that are not built in.
    """

    def __init__(self, kind: str, entries: Mapping[str, str | T], *, group: str) -> None:
        self.kind = kind
        self.group = group
        self._entries = {name: entry for name, entry in entries.items() if isinstance(entry, str)}
        self._loaded: dict[str, T] = {
            name: entry for name, entry in entries.items() if not isinstance(entry, str)
        }

    def add(self, name: str, item: T) -> None:
        """Register an object under a new name in this process."""
        if name in self:
            raise InputError(f"a {self.kind} called {name!r} already exists", hint="choose another name")
        self._loaded[name] = item

    @contextmanager
    def sandbox(self) -> Iterator[None]:
        """Forget what is added within the block; for tests.

        Examples:
            >>> from reweigh.rivals import DECODERS
            >>> with DECODERS.sandbox():
            ...     DECODERS.add("mine", DECODERS["base"])
            >>> "mine" in DECODERS
            False
        """
        before = dict(self._loaded)
        try:
            yield
        finally:
            self._loaded = before

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            if name in self._entries:
                module, _, attribute = self._entries[name].partition(":")
                self._loaded[name] = cast(T, getattr(importlib.import_module(module), attribute))
            elif (plugin := self._plugins().get(name)) is not None:
                self._loaded[name] = cast(T, plugin.load())
            else:
                raise UnknownNameError(self.kind, name, self)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._loaded or name in self._plugins()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._entries, *self._loaded, *self._plugins()]))

    def _plugins(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}
