"""A study corpus on disk: a record of what it was made with, shards, and a manifest with their hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.errors import ArtifactError, MismatchError
from reweigh.files.artifacts import drop_abandoned, require_fields, sha256_file, sha256_json
from reweigh.files.seals import read_sealed, read_sealed_tensors, write_sealed, write_sealed_tensors
from reweigh.lab.paper.corpus.image import StudyImage, pack, problem, unpack
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.provenance import first_difference
from reweigh.tables.observations import ImageObservations, Observations, collect

SCHEMA = 1
RECORD, MANIFEST = "record.json", "corpus.json"
SHARD = "shard-{:05d}.safetensors"
AGAIN = "make the corpus again in another folder"


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
    _held: dict[int, list[StudyImage]] = field(default_factory=dict, init=False, repr=False, compare=False)

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
                hint=AGAIN,
            )
        require_fields(page, folder / MANIFEST, {"record": dict, "shards": list, "skipped": list})
        found = cls(folder, page["record"], tuple(page["shards"]), tuple(page["skipped"]))
        if (reason := found._problem()) is not None:
            raise ArtifactError(f"{folder / MANIFEST} is not a study corpus: {reason}", hint=AGAIN)
        return found

    def _problem(self) -> str | None:
        """Say what is impossible about the manifest, even if its hash is right."""
        try:
            layer, vocabulary = self.record["layer"], self.record["vocab_size"]
            blocks = self.record["identity"].get("blocks", layer + 1)
            asked, read = self.record["images"]["count"], [shard["images"] for shard in self.shards]
            names = [shard["name"] for shard in self.shards]
        except (KeyError, TypeError, AttributeError) as error:
            return f"{error!r} is missing"
        if not all(type(one) is int for one in (layer, vocabulary, blocks, asked, *read)):
            return "a count is not a whole number"
        if not 0 <= layer < blocks:
            return f"layer {layer} is not one of the model's {blocks} blocks"
        if vocabulary < 1 or min(read, default=0) < 0 or sum(read) + len(self.skipped) != asked:
            return f"it has {sum(read)} images and {len(self.skipped)} unreadable ones of {asked}"
        if not sum(read):
            return "no image was read"
        if names != [SHARD.format(number) for number in range(len(names))]:
            return "its shards have unexpected names"
        return None

    def __len__(self) -> int:
        """Count the images that were read."""
        return sum(shard["images"] for shard in self.shards)

    def __iter__(self) -> Iterator[StudyImage]:
        """Iterate over the images in their order, one shard in memory at a time."""
        for number in range(len(self.shards)):
            yield from self.shard(number)

    def shard(self, number: int) -> list[StudyImage]:
        """Read the images of one shard; a file that does not match the manifest is refused."""
        path = self.folder / self.shards[number]["name"]
        if not path.is_file() or sha256_file(path) != self.shards[number]["sha256"]:
            raise ArtifactError(
                f"{path} is not the file that its manifest describes: it is missing, truncated or altered",
                hint=f"remove it and {self.folder / MANIFEST}, and run the same `reweigh study` command again",
            )
        arrays, page = read_sealed_tensors(path)
        try:
            images = unpack(arrays, page["images"])
            reasons = [problem(image, self.vocab_size) for image in images]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ArtifactError(f"{path} is not a shard of a study corpus ({error!r})", hint=AGAIN) from error
        if len(images) != self.shards[number]["images"]:
            reasons = [f"it has {len(images)} images, not {self.shards[number]['images']}"]
        if found := [reason for reason in reasons if reason is not None]:
            raise ArtifactError(f"{path} is not usable: {found[0]}", hint=AGAIN)
        return images

    def image(self, number: int) -> StudyImage:
        """Return an image by its place in the image set; one shard is held in memory at a time."""
        if number not in self._places:
            raise ArtifactError(
                f"image {number} of the set in {self.folder} could not be read when the corpus was made",
                hint="remove it from the images and start again in another folder",
            )
        shard, index = self._places[number]
        if shard not in self._held:
            self._held.clear()
            self._held[shard] = self.shard(shard)
        return self._held[shard][index]

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        """Shard of each image, and its index there."""
        return {
            image.number: (shard, index)
            for shard in range(len(self.shards))
            for index, image in enumerate(self.shard(shard))
        }

    @property
    def layer(self) -> int:
        """The block that was read."""
        return int(self.record["layer"])

    @property
    def vocab_size(self) -> int:
        """Width of the evidence vectors."""
        return int(self.record["vocab_size"])

    def observations(self, readout: str = DMRR, *, evidence: str | None = None) -> Observations:
        """Collect the candidate occurrences of the set under a readout, as calibration does.

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
        found = first_difference(read_sealed(path), self.record)
        if found is not None:
            raise MismatchError(
                "{} has a study corpus with another {}: {} there, {} asked for".format(
                    self.folder, found.key, *found.words
                ),
                hint="choose another folder, or remove this one",
            )

    def path(self, number: int) -> Path:
        """Return the file of one shard."""
        return self.folder / SHARD.format(number)

    def write(self, number: int, images: Sequence[StudyImage], skipped: Sequence[Mapping[str, str]]) -> None:
        """Write one finished shard, whole or not at all."""
        arrays, pages = pack(images)
        page = {"job": self.job, "number": number, "images": pages, "skipped": list(skipped)}
        write_sealed_tensors(self.path(number), arrays, page)

    def is_written(self, number: int) -> bool:
        """Return whether a shard is written; refuse one that was altered or belongs to another corpus."""
        path = self.path(number)
        if not path.is_file():
            return False
        page = read_sealed_tensors(path)[1]
        if (page.get("job"), page.get("number")) != (self.job, number):
            raise ArtifactError(f"{path} belongs to another study corpus", hint=f"remove {path.name}")
        return True

    def finish(self, shards: int) -> StudyCorpus:
        """Write the manifest over all shards."""
        drop_abandoned(self.folder)
        rows, skipped = [], []
        for number in range(shards):
            path = self.path(number)
            page = read_sealed_tensors(path)[1]
            rows.append({"name": path.name, "sha256": sha256_file(path), "images": len(page["images"])})
            skipped += page["skipped"]
        page = {"schema": SCHEMA, "record": dict(self.record), "shards": rows, "skipped": skipped}
        write_sealed(self.folder / MANIFEST, page)
        return StudyCorpus.open(self.folder)
