"""What a dataset is: official address, size, checksum and licence of its files. Each benchmark declares its own.

An unknown checksum is None, never a guess; the hash of the first download is then kept in the receipt.
"""

from __future__ import annotations

from dataclasses import dataclass


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
