"""What can be downloaded: address, size, checksum and licence of each file, as the benchmarks declare them.

An unknown checksum is None, never a guess; the hash of the first download is then kept in the receipt.
"""

from __future__ import annotations

from dataclasses import dataclass

from reweigh.errors import UnknownNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file to fetch.

    Args:
        name: Path below the dataset's folder; the name of the archive if it is unpacked.
        url: Official address.
        size: Bytes, where known.
        checksum: ``sha256:...`` or ``md5:...``, where known.
        unpack: Whether it is an archive whose content is wanted.
        holds: What unpacking gives, by which an unpacked local copy is recognised.
    """

    name: str
    url: str
    size: int | None = None
    checksum: str | None = None
    unpack: bool = False
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A benchmark's files, their licence, and what remains to be done by hand."""

    name: str
    title: str
    licence: str
    page: str
    files: tuple[File, ...]
    by_hand: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of all files, if every size is known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def content(self) -> tuple[str, ...]:
        """Files and folders that unpacking its archives gives."""
        return tuple(name for file in self.files for name in file.holds)


COCO_URL = "http://images.cocodataset.org"

COCO_VAL2014 = Dataset(
    name="coco-val2014",
    title="COCO val2014 images, for CHAIR and POPE",
    licence="Flickr terms of use",
    page="https://cocodataset.org",
    files=(
        File(
            name="val2014.zip",
            url=f"{COCO_URL}/zips/val2014.zip",
            size=6_645_013_297,
            checksum="md5:a3d79f5ed8d289b7a7554ce06a5782b3",
            unpack=True,
            holds=("val2014",),
        ),
    ),
)


def image_names(number: int) -> list[str]:
    """File names of the image of a number, in the releases of 2014 and 2017."""
    return [f"COCO_val2014_{number:012d}.jpg", f"{number:012d}.jpg"]


def datasets() -> dict[str, Dataset]:
    """All datasets by name, those of a benchmark together."""
    from reweigh.benchmarks.base import BENCHMARKS, find_benchmark

    found: dict[str, Dataset] = {}
    for name in BENCHMARKS:
        benchmark = find_benchmark(name)
        for entry in (benchmark.dataset, benchmark.image_dataset):
            if entry is not None:
                found.setdefault(entry.name, entry)
    return found


def dataset(name: str) -> Dataset:
    """Find a dataset, suggesting near names."""
    known = datasets()
    if name not in known:
        raise UnknownNameError("dataset", name, known)
    return known[name]
