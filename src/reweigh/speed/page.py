"""The report of a measurement as it grows: each case is shown and written as soon as it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from reweigh.files.outputs import claim, write_output, write_sealed_output
from reweigh.results.table import Table
from reweigh.speed.chart import draw
from reweigh.speed.figures import Figure, tables
from reweigh.text import in_words

SPEED, MARKDOWN = "speed.json", "speed.md"


def claim_files(out: Path, parts: Iterable[str], *, force: bool = False) -> None:
    """Refuse a folder with files of others under the names that a measurement of these parts writes."""
    names = [SPEED, MARKDOWN, *(f"{part}.svg" for part in parts)]
    claim([out / name for name in names], force=force, beside=out / SPEED)


class Page:
    """Figures in the order they come, under a description of the machine.

    Args:
        machine: The description that ``machine()`` gives.
        rounds: Rounds asked for.
        out: Folder for speed.json, speed.md and a plot of each part; ``None`` writes nothing.
        show: Called with each table once its case is whole.
    """

    def __init__(
        self, machine: Mapping[str, Any], rounds: int, out: Path | None, *, show: Callable[[Table], None]
    ) -> None:
        self.machine = machine
        self.rounds = rounds
        self.figures: list[Figure] = []
        self._out = out
        self._show = show
        self._shown = 0

    @property
    def report(self) -> dict[str, Any]:
        """Everything measured so far."""
        return {
            "machine": dict(self.machine),
            "rounds": self.rounds,
            "figures": [figure.to_json() for figure in self.figures],
        }

    def add(self, figure: Figure) -> None:
        """Take one more figure; the first of another case ends the one before."""
        last = self.figures[-1] if self.figures else figure
        if (last.part, last.case) != (figure.part, figure.case):
            self._end_case()
        self.figures.append(figure)

    def end(self) -> None:
        """Show the last case and draw what there is to draw."""
        self._end_case()
        if self._out is None:
            return
        for part in dict.fromkeys(figure.part for figure in self.figures):
            draw(self.figures, part, self._out / f"{part}.svg")

    def _end_case(self) -> None:
        new, self._shown = self.figures[self._shown :], len(self.figures)
        for table in tables(new):
            self._show(table)
        if new and self._out is not None:
            write_sealed_output(self._out / SPEED, self.report)
            lines = [f"- {name.replace('_', ' ')}: {in_words(value)}" for name, value in self.machine.items()]
            pages = [table.markdown() for table in tables(self.figures)]
            write_output(self._out / MARKDOWN, "\n".join(lines) + "\n\n" + "\n".join(pages))
