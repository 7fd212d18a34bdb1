"""A study corpus on disk: a record of what it was made with, shards, and a manifest with their hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.errors import ArtifactError, MismatchError
from reweigh.files.artifacts import drop_leftovers, sha256_file, sha256_json
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
                f"{folder} has no finished study corpus ({MANIFEST})",
                hint="run `reweigh study`, or run it again if it was stopped",
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
        """The images of one shard; a file that does not match the manifest is refused."""
        path = self.folder / self.shards[number]["name"]
        if not path.is_file() or sha256_file(path) != self.shards[number]["sha256"]:
            raise ArtifactError(
                f"{path} is not the file that its manifest describes: it is missing, truncated or altered",
                hint=f"remove it and {self.folder / MANIFEST}, and run the same `reweigh study` command again",
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
        found = read_sealed(self.folder / PIECES)
        if found.get("count") != self.vocab_size or len(found["pieces"]) != self.vocab_size:
            raise ArtifactError(
                f"{self.folder / PIECES} does not have the {self.vocab_size:,} pieces of its corpus",
                hint="make the corpus again in another folder",
            )
        return found

    def observations(self, readout: str = DMRR, *, evidence: str | None = None) -> Observations:
        """The candidate occurrences of the set under a readout, as calibration collects them.

        Args:
            readout: Which readout.
            evidence: Another of the kept vectors, read instead of the readout's own.
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
    """A corpus that is being made: its folder, and the record that its files must match."""

    folder: Path
    record: Mapping[str, Any]

    @property
    def job(self) -> str:
        """Hash of the record."""
        return sha256_json(dict(self.record))

    def claim(self) -> None:
        """Mark the folder as this corpus's, or refuse if it belongs to another."""
        path = self.folder / RECORD
        if not path.is_file():
            write_sealed(path, self.record)
            return
        found = first_difference(read_sealed(path), self.record, absent_is_none=True)
        if found is not None:
            raise MismatchError(
                "{} has a study corpus with another {}: {} there, {} asked for".format(
                    self.folder, found.key, *found.words
                ),
                hint="choose another folder, or remove this one",
            )

    def path(self, number: int) -> Path:
        """The file of one shard."""
        return self.folder / f"shard-{number:05d}.safetensors"

    def write(self, number: int, images: Sequence[StudyImage], skipped: Sequence[Mapping[str, str]]) -> None:
        """Write one finished shard, whole or not at all."""
        arrays, pages = pack(images)
        page = {"job": self.job, "number": number, "images": pages, "skipped": list(skipped)}
        write_sealed_tensors(self.path(number), arrays, page)

    def is_written(self, number: int) -> bool:
        """Whether a shard is written; one that was altered or belongs to another corpus is refused."""
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
