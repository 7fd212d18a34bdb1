"""One resumable folder: what was asked, the rows of every finished part, and a manifest of hashes at the end.

    with Job.open(folder, record, parts=20) as job:
        for part in job.pending():
            job.append(part, rows, arrays={"values": array}, note={"seconds": 1.2})
    job.rows()                                    # in the order of the parts, whatever the order they came in

``record.json`` is written first; another record is refused, naming the first key that differs. ``rows.jsonl`` has one line
for each row, and a part counts once all its rows are there: after a kill it is simply pending again. Arrays of a part are a
safetensors file beside it. When the last part is in, the rows are put in order and ``manifest.json`` gets the hash of every
file, so that a finished folder has the same bytes however it was made. Shards of a job (``pending("2/4")``) take parts of
their own; ``merge`` puts them together. Knows nothing about models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import (
    append_jsonl,
    drop_abandoned,
    only_one,
    read_json,
    read_jsonl,
    read_tensors,
    require_fields,
    sha256_file,
    write_json,
    write_tensors,
    write_text,
)
from reweigh.provenance import first_difference

if TYPE_CHECKING:
    import numpy as np

SCHEMA = 1
RECORD, ROWS, MANIFEST = "record.json", "rows.jsonl", "manifest.json"
ARRAYS = "part-{:06d}.safetensors"
PLACES = "places"
"""Key of a record for folders of data and images: kept for people, never compared."""
PART, OF, NOTE, DIGEST = "part", "of", "note", "arrays_sha256"
"""Keys that a row has besides its own: its part, how many rows that has, and on a part's first row note and hash."""
OWN = (PART, OF, NOTE, DIGEST)


class Job:
    """Numbered parts of one piece of work, kept in a folder as they are finished; see ``open`` and ``read``."""

    def __init__(self, folder: Path | None, record: Mapping[str, Any], parts: int) -> None:
        self.folder, self.record, self.parts = folder, dict(record), parts
        self._rows: dict[int, list[dict[str, Any]]] = {}
        self._arrays: dict[int, Mapping[str, np.ndarray[Any, Any]]] = {}
        self._held = ExitStack()

    @classmethod
    def open(cls, folder: str | Path | None, record: Mapping[str, Any], *, parts: int) -> Job:
        """Start a job or resume it; the folder is locked until ``close``, or the end of a ``with`` block.

        Args:
            folder: Where it is kept; None keeps it in memory.
            record: Everything that the rows depend on, as plain JSON; what is under ``places`` is not compared.
            parts: How many parts there are.

        Raises:
            MismatchError: The folder has a job with another record.
            InputError: The folder has other files under the names of a job, or another process writes to it.
        """
        job = cls(None if folder is None else Path(folder), record, parts)
        if job.folder is None:
            return job
        try:
            job._held.enter_context(only_one(job.folder))
            job._start()
        except BaseException:
            job.close()
            raise
        return job

    @classmethod
    def read(cls, folder: str | Path) -> Job:
        """Read the job in a folder, finished or not, without locking it; a finished file that was altered is refused."""
        folder = Path(folder)
        page = _read_record(folder)
        job = cls(folder, page["record"], page["parts"])
        job._read_rows()
        return job

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder has a job."""
        return (folder / RECORD).is_file()

    @classmethod
    def claim(cls, folder: Path) -> None:
        """Refuse a folder that has other files under the names of a job; call it before any work."""
        if cls.is_in(folder):
            _read_record(folder)
            if (folder / MANIFEST).exists():
                _verify(folder, (RECORD, ROWS))
        elif taken := [name for name in (ROWS, MANIFEST) if (folder / name).exists()]:
            raise InputError(
                f"{folder / taken[0]} exists, but there is no {RECORD}", hint="choose another folder"
            )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlock the folder."""
        self._held.close()

    @property
    def _home(self) -> Path:
        if self.folder is None:
            raise InputError("this job is kept in memory and has no folder")
        return self.folder

    def _start(self) -> None:
        self.claim(self._home)
        if not self.is_in(self._home):
            page = {"schema": SCHEMA, "parts": self.parts, "record": self.record}
            write_json(self._home / RECORD, page)
            if not self.parts:
                self._finish()
            return
        page = _read_record(self._home)
        found = first_difference(page["record"], self.record, ignore=(PLACES,)) or first_difference(
            {"parts": page["parts"]}, {"parts": self.parts}
        )
        if found is not None:
            raise MismatchError(
                "{} contains a run with a different {} ({}; now {})".format(
                    self._home, found.key, *found.words
                ),
                hint="choose another folder, or repeat the configuration in its record.json",
            )
        self._read_rows()
        if not self.pending() and not self.finished:  # killed between the last row and the manifest
            self._finish()

    def _read_rows(self) -> None:
        """Read the parts whose rows are all there, and verify a finished folder."""
        if self.finished:
            _verify(self._home, (RECORD, ROWS))
        if not (self._home / ROWS).exists():
            return
        found: dict[int, list[dict[str, Any]]] = {}
        for number, row in enumerate(read_jsonl(self._home / ROWS), start=1):
            part, of = row.get(PART), row.get(OF)
            if type(part) is not int or type(of) is not int or not 0 <= part < self.parts or of < 1:
                raise ArtifactError(
                    f"{self._home / ROWS}, line {number}, is not a row of this job",
                    hint="the file was altered; choose another folder",
                )
            rows = found.setdefault(part, [])
            if len(rows) == of or NOTE in row:  # an attempt that a kill cut short comes before the whole one
                rows.clear()
            rows.append(row)
        self._rows = {part: rows for part, rows in found.items() if len(rows) == rows[0][OF]}

    @property
    def finished(self) -> bool:
        """Whether all parts are in and the manifest is written."""
        if self.folder is None:
            return not self.pending()
        return (self.folder / MANIFEST).is_file()

    @property
    def done(self) -> list[int]:
        """The parts that are finished, in order."""
        return sorted(self._rows)

    def pending(self, shard: str = "1/1") -> list[int]:
        """Return the parts that are not finished; of shard ``i/n``, every n-th from the i-th on.

        Examples:
            >>> Job.open(None, {}, parts=5).pending("2/2")
            [1, 3]
        """
        index, count = parse_shard(shard)
        return [part for part in range(self.parts)[index - 1 :: count] if part not in self._rows]

    def append(
        self,
        part: int,
        rows: Sequence[Mapping[str, Any]],
        *,
        arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep a finished part; the last one writes the manifest.

        Args:
            part: Its number.
            rows: At least one, plain JSON.
            arrays: Numbers that belong to the part.
            note: A remark on the part as a whole, such as what it cost.
        """
        if not rows:
            raise InputError(f"part {part} has no rows")
        marks: dict[str, Any] = {NOTE: dict(note or {})}
        if arrays is not None:
            if self.folder is None:
                self._arrays[part] = arrays
            else:
                self._require_there()
                path = self.folder / ARRAYS.format(part)
                write_tensors(path, arrays)
                marks[DIGEST] = sha256_file(path)
        kept = [
            {PART: part, OF: len(rows), **(marks if index == 0 else {}), **row}
            for index, row in enumerate(rows)
        ]
        if self.folder is not None:
            self._require_there()
            append_jsonl(self.folder / ROWS, kept)
        self._rows[part] = kept
        if self.folder is not None and not self.pending():
            self._finish()

    def _require_there(self) -> None:
        if not self.is_in(self._home):
            raise ArtifactError(
                f"{self._home / RECORD} is gone: the folder was removed or changed while it was being written",
                hint="run the same command again",
            )

    def _finish(self) -> None:
        """Put the rows in order, remove what killed writers left, and write the manifest."""
        drop_abandoned(self._home)
        lines = (_line(row) for part in self.done for row in self._rows[part])
        write_text(self._home / ROWS, "".join(lines))
        digests = {
            ARRAYS.format(part): rows[0][DIGEST] for part, rows in self._rows.items() if DIGEST in rows[0]
        }
        files = {name: sha256_file(self._home / name) for name in (RECORD, ROWS)} | digests
        write_json(self._home / MANIFEST, {"files": files})

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all finished parts, in the order of the parts."""
        return [
            {key: value for key, value in row.items() if key not in OWN}
            for part in self.done
            for row in self._rows[part]
        ]

    def part(self, part: int) -> list[dict[str, Any]]:
        """Return the rows of one finished part."""
        return [{key: value for key, value in row.items() if key not in OWN} for row in self._rows[part]]

    def notes(self) -> dict[int, dict[str, Any]]:
        """Return the note on each finished part."""
        return {part: self._rows[part][0][NOTE] for part in self.done}

    def arrays(self, part: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of a finished part; a file that was altered is refused."""
        if self.folder is None:
            return dict(self._arrays[part])
        path = self.folder / ARRAYS.format(part)
        if not path.is_file() or sha256_file(path) != self._rows[part][0].get(DIGEST):
            raise ArtifactError(
                f"{path} is missing or was altered after it was written",
                hint=f"remove {self.folder / MANIFEST} and the rows of part {part} in {ROWS}, and run it again",
            )
        return read_tensors(path)

    def merge(self, others: Iterable[Job]) -> None:
        """Take the parts of other shards of the same job."""
        for other in others:
            found = first_difference(other.record, self.record, ignore=(PLACES,))
            if found is not None or other.parts != self.parts:
                key = "number of parts" if found is None else found.key
                raise MismatchError(f"{other.folder} and {self.folder} differ in their {key}: not one job")
            for part in set(other.done) & set(self.pending()):
                first = other._rows[part][0]
                has_arrays = DIGEST in first or part in other._arrays
                arrays = other.arrays(part) if has_arrays else None
                self.append(part, other.part(part), arrays=arrays, note=first[NOTE])


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``i/n``.

    Examples:
        >>> parse_shard("2/4")
        (2, 4)
    """
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise InputError(f"{text!r} is not a shard i/n", hint="give 1/4 for the first of four")
    return int(index), int(count)


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"


def _read_manifest(folder: Path) -> dict[str, Any]:
    page = read_json(folder / MANIFEST)
    if not isinstance(page, dict):
        raise ArtifactError(f"{folder / MANIFEST} was altered", hint="remove the folder and run it again")
    require_fields(page, folder / MANIFEST, {"files": dict})
    return page


def _verify(folder: Path, names: Iterable[str]) -> None:
    """Refuse a file of a finished folder that is not the one in its manifest."""
    page = _read_manifest(folder)
    for name in names:
        path = folder / name
        if not path.is_file() or sha256_file(path) != page["files"].get(name):
            raise ArtifactError(
                f"{path} is missing, or was altered after the job was finished",
                hint="remove the folder and run it again",
            )


def _read_record(folder: Path) -> dict[str, Any]:
    if not Job.is_in(folder):
        raise InputError(f"{folder} has no {RECORD}", hint="give the folder of a run")
    page = read_json(folder / RECORD)
    if not isinstance(page, dict) or page.get("schema") != SCHEMA:
        raise ArtifactError(
            f"{folder / RECORD} was not written by this version of reweigh", hint="choose another folder"
        )
    require_fields(page, folder / RECORD, {"parts": int, "record": dict})
    return page
