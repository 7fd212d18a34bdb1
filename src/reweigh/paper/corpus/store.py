"""A study corpus on the disk: a record of what it was made with, shards, and a manifest with their hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.errors import ArtifactError, MismatchError
from reweigh.files.artifacts import drop_leftovers, read_json, sha256_file, sha256_json
from reweigh.files.seals import read_sealed, read_sealed_tensors, write_sealed, write_sealed_tensors
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.paper.corpus.image import StudyImage, pack, unpack
from reweigh.provenance import first_difference
from reweigh.tables.observations import ImageObservations, Observations, collect

SCHEMA = 1
RECORD, MANIFEST, PIECES = "record.json", "corpus.json", "pieces.json"


@dataclass(frozen=True)
class StudyCorpus:
    """A finished corpus; iterating reads one shard at a time.

    Attributes:
        folder: Where it lies.
        record: What it was made with: model identity, layer, lens, prompt, image set, seed, versions.
        shards: Name, hash and number of images of each file.
        skipped: Images that could not be read.
    """

    folder: Path
    record: Mapping[str, Any]
    shards: tuple[Mapping[str, Any], ...]
    skipped: tuple[Mapping[str, str], ...]

    @classmethod
    def open(cls, folder: str | Path) -> StudyCorpus:
        """Open a finished corpus."""
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            raise ArtifactError(
                f"{folder} holds no finished study corpus ({MANIFEST})",
                hint="`reweigh study` makes one; the same command finishes one that was stopped",
            )
        page = read_sealed(folder / MANIFEST)
        if page.get("schema") != SCHEMA:
            raise ArtifactError(
                f"{folder / MANIFEST} has schema {page.get('schema')!r}, this version reads {SCHEMA}",
                hint="make the corpus again in another folder",
            )
        return cls(folder, page["record"], tuple(page["shards"]), tuple(page["skipped"]))

    def __len__(self) -> int:
        """Images that were read."""
        return sum(shard["images"] for shard in self.shards)

    def __iter__(self) -> Iterator[StudyImage]:
        """The images in their order, one shard in memory at a time."""
        for number in range(len(self.shards)):
            yield from self.shard(number)

    def shard(self, number: int) -> list[StudyImage]:
        """The images of one shard; a file that is not the manifest's is refused."""
        path = self.folder / self.shards[number]["name"]
        if not path.is_file() or sha256_file(path) != self.shards[number]["sha256"]:
            raise ArtifactError(
                f"{path} is not the file its manifest describes: it is missing, cut or altered",
                hint=f"remove it and {self.folder / MANIFEST}; the same `reweigh study` command makes it again",
            )
        arrays, page = read_sealed_tensors(path)
        return unpack(arrays, page["images"])

    @property
    def layer(self) -> int:
        """The block that was read."""
        return int(self.record["layer"])

    @property
    def vocab_size(self) -> int:
        """Width of the evidence vectors."""
        return int(self.record["vocab_size"])

    def pieces(self) -> dict[str, Any]:
        """The tokenizer's ``pieces`` by id, ``None`` for ids beyond it, and the ids of ``special`` tokens."""
        found: dict[str, Any] = read_json(self.folder / PIECES)
        return found

    def observations(self, readout: str = DMRR, *, evidence: str | None = None) -> Observations:
        """The candidate occurrences of the set under a readout, as calibration collects them.

        Args:
            readout: Which readout.
            evidence: Another of the kept vectors that stands in for the readout's own.
        """
        matched = READOUTS[readout].matched
        parts = []
        for image in self:
            token, count = np.unique(image.candidates, return_counts=True)
            values = image.evidence[evidence or readout][None, token]
            ranks = image.evidence[DMRR][None, token] if matched else None
            parts.append(ImageObservations(image.key, token, count, values, ranks))
        return collect((self.layer,), parts, readout=readout)


@dataclass(frozen=True)
class Making:
    """A corpus that is being made: its folder, and the record by which it knows its own files."""

    folder: Path
    record: Mapping[str, Any]

    @property
    def job(self) -> str:
        """Hash of the record."""
        return sha256_json(dict(self.record))

    def claim(self) -> None:
        """Make the folder this corpus's own, or refuse if it belongs to another."""
        path = self.folder / RECORD
        if not path.is_file():
            write_sealed(path, self.record)
            return
        found = first_difference(read_sealed(path), self.record, absent_is_none=True)
        if found is not None:
            raise MismatchError(
                "{} holds a study corpus with another {}: {} there, {} asked for".format(
                    self.folder, found.key, *found.words
                ),
                hint="choose another folder, or remove that one",
            )

    def path(self, number: int) -> Path:
        """Where one shard is kept."""
        return self.folder / f"shard-{number:05d}.safetensors"

    def write(self, number: int, images: Sequence[StudyImage], skipped: Sequence[Mapping[str, str]]) -> None:
        """Keep one finished shard, whole or absent."""
        arrays, pages = pack(images)
        page = {"job": self.job, "number": number, "images": pages, "skipped": list(skipped)}
        write_sealed_tensors(self.path(number), arrays, page)

    def is_written(self, number: int) -> bool:
        """Whether a shard is there; one that is another's or was altered is refused."""
        path = self.path(number)
        if not path.is_file():
            return False
        page = read_sealed_tensors(path)[1]
        if (page.get("job"), page.get("number")) != (self.job, number):
            raise ArtifactError(f"{path} belongs to another study corpus", hint=f"remove {path.name}")
        return True

    def finish(self, shards: int) -> StudyCorpus:
        """Write the manifest over all shards."""
        drop_leftovers(self.folder / RECORD, self.folder / PIECES, *(self.path(n) for n in range(shards)))
        rows, skipped = [], []
        for number in range(shards):
            path = self.path(number)
            page = read_sealed_tensors(path)[1]
            rows.append({"name": path.name, "sha256": sha256_file(path), "images": len(page["images"])})
            skipped += page["skipped"]
        page = {"schema": SCHEMA, "record": dict(self.record), "shards": rows, "skipped": skipped}
        write_sealed(self.folder / MANIFEST, page)
        return StudyCorpus.open(self.folder)
