"""A finished comparison as files: tables in Markdown and LaTeX, a page, JSON."""

from __future__ import annotations

from pathlib import Path

from reweigh.experiments.compare import render
from reweigh.experiments.compare.examples import example_sections
from reweigh.experiments.compare.page import html
from reweigh.experiments.compare.table import Comparison
from reweigh.experiments.experiment import write_frame
from reweigh.files.artifacts import write_text
from reweigh.files.seals import write_sealed

FILES = ("comparison.md", "comparison.html", "comparison.tex", "comparison.json")


def write(made: Comparison, out: Path) -> list[Path]:
    """Write the tables, the page with examples of the runs in ``out``, and the numbers; returns the files."""
    markdown, page, latex, numbers = files = [out / name for name in FILES]
    write_text(markdown, render.markdown(made))
    write_text(page, html(made, example_sections(made)))
    write_text(latex, render.latex(made))
    write_sealed(numbers, made.to_json())
    write_frame(made.frame, out)
    return files
