"""A tidy table of results: every row is a set of named keys and one ``Estimate``.

Experiments, runs and the paper's analyses all end in a frame. Keys are plain values (an arm, a benchmark, a figure, a
layer), the same names in every row; the key ``against`` names the reference of a paired difference.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from reweigh.errors import ArtifactError, InputError, MissingExtraError
from reweigh.lab.estimate import Estimate
from reweigh.text import shortened

if TYPE_CHECKING:
    import pandas

Key: TypeAlias = "str | int | float | bool | None"
PARTS = ("value", "low", "high", "reason")
AGAINST = "against"
"""Key that names the reference of a paired difference; None if the row is not a difference."""


@dataclass(frozen=True, slots=True)
class Row:
    """One estimate and what it is of."""

    keys: Mapping[str, Key]
    estimate: Estimate

    def __getitem__(self, name: str) -> Key:
        return self.keys[name]

    def to_json(self) -> dict[str, Any]:
        """Return keys, value and interval as one flat object."""
        return {**self.keys, **self.estimate.to_json()}


@dataclass(frozen=True, repr=False)
class Frame:
    """Rows with the same keys, and what they were made with.

    Attributes:
        rows: The rows; no two have the same keys.
        about: Model, benchmark, settings: whatever holds for all rows, as plain JSON.

    Examples:
        >>> rows = [Row({"arm": "base"}, Estimate(17.1)), Row({"arm": "reweigh"}, Estimate(9.4, 8.4, 10.5))]
        >>> Frame(rows).one(arm="reweigh").value
        9.4
        >>> print(Frame(rows).to_csv())
        arm,value,low,high,reason
        base,17.1,,,
        reweigh,9.4,8.4,10.5,
        <BLANKLINE>
    """

    rows: tuple[Row, ...]
    about: Mapping[str, Any] = field(default_factory=dict)
    _found: dict[tuple[Key, ...], Estimate] = field(init=False, repr=False, compare=False)

    def __init__(self, rows: Iterable[Row] = (), about: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "rows", tuple(rows))
        object.__setattr__(self, "about", dict(about or {}))
        object.__setattr__(self, "_found", {})
        for row in self.rows:
            if tuple(row.keys) != self.keys:
                raise InputError(f"a row has the keys {list(row.keys)}, the first one {list(self.keys)}")
            if clash := [name for name in row.keys if name in PARTS]:
                raise InputError(f"{clash[0]!r} names a part of an estimate and cannot be a key")
            if (own := tuple(row.keys.values())) in self._found:
                raise InputError(f"two rows have the keys {dict(row.keys)}")
            self._found[own] = row.estimate

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(self.rows[0].keys) if self.rows else ()

    def __repr__(self) -> str:
        """Name the keys with their values, instead of every row.

        >>> Frame([Row({"arm": arm, "figure": "f1"}, Estimate(1.0)) for arm in ("base", "vcd")])
        Frame(2 rows; arm: base, vcd; figure: f1)
        """
        parts = [f"{key}: {shortened([str(one) for one in self.distinct(key)])}" for key in self.keys]
        return f"Frame({'; '.join([f'{len(self)} rows', *parts])})"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def distinct(self, key: str) -> list[Key]:
        """Return the different values of a key, in the order of the rows."""
        self._require(key)
        return list(dict.fromkeys(row.keys[key] for row in self.rows))

    def pick(self, **wanted: Key | Collection[Key]) -> Frame:
        """Return the rows whose keys have these values; a list or set stands for any of its values."""
        self._require(*wanted)
        sets = {
            name: set(one) if isinstance(one, Collection) and not isinstance(one, str) else {one}
            for name, one in wanted.items()
        }
        return Frame(
            (row for row in self.rows if all(row.keys[name] in some for name, some in sets.items())),
            self.about,
        )

    def one(self, **wanted: Key) -> Estimate:
        """Return the only estimate whose keys have these values."""
        found = self.pick(**wanted).rows
        if len(found) != 1:
            raise InputError(
                f"{len(found)} rows have {wanted}, not one", hint=f"keys: {', '.join(self.keys)}"
            )
        return found[0].estimate

    def get(self, **wanted: Key) -> Estimate | None:
        """Return the only estimate whose keys have these values, or None if there is no such row."""
        if len(wanted) == len(self.keys):
            self._require(*wanted)
            return self._found.get(tuple(wanted[name] for name in self.keys))
        return self.one(**wanted) if len(self.pick(**wanted)) else None

    def against(self, reference: str) -> Frame:
        """Return the paired differences to a reference: the same images were drawn for both."""
        found = self.pick(**{AGAINST: reference}) if AGAINST in self.keys else Frame()
        if not found.rows:
            raise InputError(
                f"no differences to {reference!r} were computed",
                hint=f"known references: {self._references() or 'none'}",
            )
        return found

    def values(self) -> Frame:
        """Return the rows that are not differences."""
        return self.pick(**{AGAINST: None}) if AGAINST in self.keys else self

    def _references(self) -> str:
        named = self.distinct(AGAINST) if AGAINST in self.keys else []
        return ", ".join(str(one) for one in named if one is not None)

    def _require(self, *names: str) -> None:
        for name in names:
            if self.rows and name not in self.keys:
                raise InputError(f"there is no key {name!r}", hint=f"keys: {', '.join(self.keys)}")

    def to_json(self) -> dict[str, Any]:
        """Return the rows and what they were made with, as plain JSON."""
        return {
            "about": dict(self.about),
            "keys": list(self.keys),
            "rows": [row.to_json() for row in self.rows],
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Frame:
        """Read what :meth:`to_json` gave."""
        try:
            return cls(
                (
                    Row({name: row[name] for name in page["keys"]}, Estimate(**_parts(row)))
                    for row in page["rows"]
                ),
                page["about"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(f"this is not the JSON of a frame ({error!r})") from error

    def to_csv(self) -> str:
        """Return the rows as CSV: the keys, then value, low, high and reason."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*self.keys, *PARTS])
        for row in self.rows:
            writer.writerow([*row.keys.values(), *row.estimate.parts, row.estimate.reason])
        return text.getvalue()

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a data frame with the columns of :meth:`to_csv`; ``about`` is in its ``attrs``."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError("a data frame", "pandas", "pandas") from error
        rows = [[*row.keys.values(), *row.estimate.parts, row.estimate.reason] for row in self.rows]
        found = pandas.DataFrame(rows, columns=[*self.keys, *PARTS])
        found.attrs = dict(self.about)
        return found


def _parts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in PARTS}
