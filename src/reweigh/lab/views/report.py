"""The output of an experiment: a page for people, numbers for programs, and a tidy frame, written under fixed names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.files.outputs import claim, write_sealed_output
from reweigh.files.seals import read_sealed
from reweigh.lab.frame import Frame
from reweigh.lab.views.page import Page

FRAME = "frame.json"
"""The file of an experiment's folder that holds its frame."""


def claim_report(out: Path, files: Sequence[str]) -> None:
    """Refuse a folder with other files under the names of a report."""
    claim([out / name for name in (*files, FRAME)])


@dataclass(frozen=True)
class Report:
    """The results of an experiment.

    Attributes:
        files: The names to write them under: the page by its endings, and the numbers as ``.json``.
        page: What people read, in a browser, a document or the terminal.
        numbers: What programs read, as plain JSON.
        frame: Every figure, for ``reweigh.read``.
    """

    files: Sequence[str]
    page: Page
    numbers: Mapping[str, Any]
    frame: Frame

    def write(self, out: Path) -> list[Path]:
        """Write everything into a folder, the numbers and the frame sealed; return the files."""
        claim_report(out, self.files)
        written = [
            write_sealed_output(out / name, self.numbers)
            if name.endswith(".json")
            else self.page.write(out / name)
            for name in self.files
        ]
        return [*written, write_frame(self.frame, out)]


def write_frame(frame: Frame, out: Path) -> Path:
    """Seal an experiment's frame in its folder, where ``reweigh.read`` finds it."""
    return write_sealed_output(out / FRAME, frame.to_json())


def read_frame(out: Path) -> Frame:
    """Read the frame of an experiment's folder."""
    return Frame.from_json(read_sealed(out / FRAME))
