"""Sketches of a calibration while it runs: finished batches are added up in files, so that few are left at any time.

Batches are the leaves of a tree in which every node has 64 children. When all children of a node are on disk, their sum
takes their place. Sketches of the same images are the same however they were added up, so a run that was stopped ends with
the bytes of one that was not, and what is held in memory is one sum and one part, whatever the number of images.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from reweigh.calibration.corpus import CorpusImage
from reweigh.calibration.resume import WORK, Work
from reweigh.errors import ArtifactError
from reweigh.files.artifacts import require_fields
from reweigh.files.seals import read_sealed_tensors, write_sealed_tensors
from reweigh.tables.observations import ImageObservations, collect
from reweigh.tables.sketches import Sketches, merge_sketches, sketch

FAN = 64
"""Children of a node."""

Skipped: TypeAlias = list[dict[str, str]]
Node: TypeAlias = tuple[int, int]
"""Level and number; the batches are level 0."""

NAME = re.compile(r"(?:part|sum-([1-9]))-(\d{6,})\.safetensors")


class Sums:
    """The sketches of the batches that are done, as files of an unfinished calibration."""

    def __init__(self, work: Work, batches: Sequence[Sequence[CorpusImage]]) -> None:
        self.work = work
        self.batches = batches
        self.nodes: set[Node] = set()
        found = (NAME.fullmatch(path.name) for path in (work.folder / WORK).iterdir())
        nodes = {(int(one[1] or 0), int(one[2])) for one in found if one}
        for node in sorted(filter(self._is_whole, nodes), reverse=True):
            if (added := self._sum_of(node)) is None:
                self.nodes.add(node)
            else:  # the run was killed after the sum was written, which is trusted once it was read
                self._read(added)
                self._path(node).unlink()
        for node in sorted(self.nodes):  # killed before a sum was written
            self._add_up(node)

    def done(self) -> set[int]:
        """The numbers of the batches that are on disk, alone or in a sum."""
        return {number for node in self.nodes for number in self._leaves(node)}

    def keep(self, number: int, observed: tuple[list[ImageObservations], Skipped]) -> None:
        """Keep one finished batch, and whatever sums it completes."""
        self.work.write_part(number, *observed)
        self.nodes.add((0, number))
        self._add_up((0, number))

    def _add_up(self, node: Node) -> None:
        """Put the sum of a node and its siblings in their place once all are there, then that of the sum and its own."""
        while (children := _siblings(node)) <= self.nodes:
            node = (node[0] + 1, node[1] // FAN)
            self._write(node, *self._united(sorted(children)))
            self.nodes.add(node)
            for child in sorted(children):
                self._path(child).unlink()
            self.nodes -= children

    def total(self) -> tuple[Sketches, Skipped]:
        """The sketches of all batches, and the images that were left out."""
        return self._united(sorted(self.nodes))

    def _united(self, nodes: Sequence[Node]) -> tuple[Sketches, Skipped]:
        skipped: Skipped = []

        def parts() -> Iterator[Sketches]:
            leaves = [number for level, number in nodes if not level]
            rows = []
            for number in leaves:
                found, unread = self.work.read_part(number, self.batches[number])
                rows += found
                skipped.extend(unread)
            yield self._sketch(rows)
            for node in nodes:
                if node[0]:
                    part, unread = self._read(node)
                    skipped.extend(unread)
                    yield part

        return merge_sketches(parts()), skipped

    def _sketch(self, rows: list[ImageObservations]) -> Sketches:
        seen = collect(self.work.layers, rows, readout=self.work.readout)
        return sketch(seen, most=self._bins)

    def _write(self, node: Node, whole: Sketches, skipped: Skipped) -> None:
        page = {"job": self.work.job, "level": node[0], "number": node[1], "skipped": skipped}
        write_sealed_tensors(self._path(node), whole.arrays(), page)

    def _read(self, node: Node) -> tuple[Sketches, Skipped]:
        """A sum, which must speak of the images of its batches alone."""
        path = self._path(node)
        try:
            arrays, page = read_sealed_tensors(path)
            require_fields(page, path, {"skipped": list})
            found = Sketches.of_arrays(
                arrays, self.work.layers, path, most=self._bins, readout=self.work.readout
            )
            if (page.get("job"), page.get("level"), page.get("number")) != (self.work.job, *node):
                raise ArtifactError(f"{path} belongs to another calibration or to other batches")
            if not self._is_about(found, node, page["skipped"]):
                raise ArtifactError(f"{path} does not speak of the images of its batches")
        except ArtifactError as error:
            raise ArtifactError(
                error.message, hint=f"remove {path.name}: the same command decodes its images again"
            ) from error
        return found, page["skipped"]

    def _is_about(self, found: Sketches, node: Node, skipped: list[Any]) -> bool:
        keys = {image.key for number in self._leaves(node) for image in self.batches[number]}
        left_out = {skip["key"] for skip in skipped}
        return left_out <= keys and found.holds(keys - left_out)

    @property
    def _bins(self) -> int:
        if self.work.bins is None:
            raise ValueError("sums are kept where sketches are")
        return self.work.bins

    def _path(self, node: Node) -> Path:
        level, number = node
        return self.work.sum(level, number) if level else self.work.part(number)

    def _leaves(self, node: Node) -> range:
        width = FAN ** node[0]
        return range(node[1] * width, (node[1] + 1) * width)

    def _is_whole(self, node: Node) -> bool:
        """Whether a node's batches are all of this calibration; another file of such a name is not its own."""
        return self._leaves(node).stop <= len(self.batches)

    def _sum_of(self, node: Node) -> Node | None:
        """The sum on disk that holds a node, if there is one."""
        level, number = node
        above = ((level + up, number // FAN**up) for up in range(1, 10))
        return next((one for one in above if one in self.nodes), None)


def _siblings(node: Node) -> set[Node]:
    """A node and those that are added up with it."""
    level, number = node
    start = number - number % FAN
    return {(level, one) for one in range(start, start + FAN)}
