"""A sealed folder: how tables, calibrations and steering vectors lie on the disk, and how they are verified.

A folder holds one page (JSON) and one file of numbers (safetensors). The page carries its own hash and that of the numbers,
so a cut, altered or swapped file is never taken for an artifact. The page is written last: without it there is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import read_tensors, require_fields, sha256_file, tensor_bytes, write_tensors
from reweigh.files.outputs import claim, write_output
from reweigh.files.seals import read_sealed, write_sealed

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class SealedFolder:
    """The layout of one kind of artifact, and how it is written and read.

    Attributes:
        kind: What messages call it.
        page: Name of the page.
        numbers: Name of the file of numbers.
        arrays: Arrays that the numbers must hold.
        fields: Fields that the page must hold, each with its type.
        digest: Field of the page with the hash of the numbers.
        schema: The ``schema_version`` that can be read; ``None`` for pages without one.
        remedy: What to do about a folder that cannot be read.
    """

    kind: str
    page: str
    numbers: str
    arrays: Sequence[str]
    fields: Mapping[str, type] = field(default_factory=dict)
    digest: str = "numbers_sha256"
    schema: int | None = None
    remedy: str = "fetch it or make it again"

    def is_in(self, folder: Path) -> bool:
        """Whether a folder holds such an artifact, whole or not."""
        return (folder / self.page).is_file()

    def claim(self, folder: Path) -> None:
        """Refuse files of others under the names of the page and the numbers."""
        claim([folder / self.page, folder / self.numbers])

    def write_output(
        self, folder: Path, page: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Path:
        """Write page and numbers as outputs of a command: files of others are refused."""
        self.claim(folder)
        write_output(folder / self.numbers, tensor_bytes(arrays))
        return self._seal(folder, page)

    def write(
        self, folder: Path, page: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Path:
        """Write the numbers, then the page that vouches for them."""
        write_tensors(folder / self.numbers, arrays)
        return self._seal(folder, page)

    def _seal(self, folder: Path, page: Mapping[str, Any]) -> Path:
        write_sealed(folder / self.page, {**page, self.digest: sha256_file(folder / self.numbers)})
        return folder

    def read(self, folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """Read page and numbers and verify that they are whole; the caller checks what they mean.

        Raises:
            ArtifactError: Something is missing, altered, or of another version.
        """
        page = self.read_page(folder)
        numbers = folder / self.numbers
        if not numbers.is_file():
            raise ArtifactError(
                f"{numbers} is missing: only part of the {self.kind} was copied", hint=self.remedy
            )
        if sha256_file(numbers) != page[self.digest]:
            raise ArtifactError(
                f"{numbers} is not the file its page describes: it was cut or altered", hint=self.remedy
            )
        arrays = read_tensors(numbers)
        if not set(self.arrays) <= set(arrays):
            raise ArtifactError(f"{numbers} holds {sorted(arrays)}, not {', '.join(self.arrays)}")
        return page, arrays

    def read_page(self, folder: Path) -> dict[str, Any]:
        """Read and verify the page alone."""
        path = folder / self.page
        if not path.is_file():
            raise ArtifactError(f"{folder} holds no {self.kind} ({self.page})", hint=self.remedy)
        page = read_sealed(path)
        schema = page.get("schema_version")
        if self.schema is not None and (type(schema) is not int or schema != self.schema):
            raise ArtifactError(
                f"{path} has schema {schema!r}, this version reads {self.schema}",
                hint=f"upgrade reweigh, or {self.remedy}",
            )
        require_fields(page, path, {**self.fields, self.digest: str})
        return page
