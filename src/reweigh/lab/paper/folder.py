"""Run studies into folders, read them back, and show them on one page.

A study's folder contains ``frame.json`` (which ``reweigh.read`` reads) and ``table.csv`` with the same numbers,
``figure.png`` and ``figure.svg``, ``sentences.md``, further files of the study, and last ``study.json``: what it was
computed from, its sentences, the number of rows, and the hash of each file. A finished study is not computed again.
``report.html`` shows all finished studies and needs no other file: figures and pictures are embedded.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import drop_abandoned, sha256_file, sha256_json
from reweigh.files.outputs import claim, write_output, write_sealed_output
from reweigh.files.seals import read_sealed
from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.material import Material
from reweigh.lab.paper.study import FIGURE, FRAGMENT, Outcome, Study, compute
from reweigh.lab.read import STUDY
from reweigh.lab.views.html import Html, part
from reweigh.lab.views.page import Page
from reweigh.lab.views.report import FRAME, read_frame, write_frame
from reweigh.lab.views.table import MISSING, Cell, Column, Table
from reweigh.progress import bar

SCHEMA = 2
TABLE, SENTENCES, REPORT = "table.csv", "sentences.md", "report.html"


def run_studies(names: Sequence[str], material: Material, out: Path) -> list[Outcome]:
    """Run studies by name into folders below ``out``; finished ones are read."""
    outcomes = []
    with bar("studies", total=len(names), unit="study") as progress:
        for name in names:
            progress.set_description(name)
            study = STUDIES[name]
            fingerprint = fingerprint_of(study, material)
            found = read_study(out / name, study, fingerprint)
            if found is None:
                found = compute(study, material)
                write_study(out / name, found, material, fingerprint)
            outcomes.append(found)
            progress.update(1)
    return outcomes


def finished(material: Material, out: Path) -> list[Outcome]:
    """Return every finished study of the same material in a folder, in the order of the paper."""
    studies = (STUDIES[name] for name in STUDIES)
    kept = (read_study(out / study.name, study, fingerprint_of(study, material)) for study in studies)
    return [outcome for outcome in kept if outcome is not None]


def fingerprint_of(study: type[Study], material: Material) -> str:
    """Hash what a study's results depend on."""
    inputs = study().inputs(material)
    return (
        sha256_json({"material": material.fingerprint, "inputs": inputs}) if inputs else material.fingerprint
    )


def further_files(study: type[Study]) -> list[str]:
    """Name what a study may write beside its numbers and sentences."""
    return [f"{FIGURE}.png", f"{FIGURE}.svg", *study.files]


def claim_study(folder: Path, study: type[Study]) -> None:
    """Refuse a folder with files of others under the names that a study writes."""
    names = [STUDY, FRAME, TABLE, SENTENCES, *further_files(study)]
    claim([folder / name for name in names])


def write_study(folder: Path, outcome: Outcome, material: Material, fingerprint: str) -> None:
    """Write a study's files; the page that vouches for them comes last."""
    claim_study(folder, outcome.study)
    for name in (STUDY, *further_files(outcome.study)):
        (folder / name).unlink(missing_ok=True)
    drop_abandoned(folder)
    write_frame(outcome.frame, folder)
    write_output(folder / TABLE, outcome.frame.to_csv())
    write_output(folder / SENTENCES, "\n\n".join(outcome.sentences) + "\n")
    if outcome.frame:
        outcome.study().draw(outcome.frame, folder / FIGURE)
        outcome.study().extras(outcome.frame, material, folder)
    more = [name for name in further_files(outcome.study) if (folder / name).is_file()]
    page = {
        "schema": SCHEMA,
        "study": outcome.study.name,
        "material": material.record(),
        "material_sha256": fingerprint,
        "rows": len(outcome.frame),
        "sentences": list(outcome.sentences),
        "unmet": outcome.unmet,
        "files": {name: sha256_file(folder / name) for name in (FRAME, TABLE, SENTENCES, *more)},
    }
    write_sealed_output(folder / STUDY, page)


def read_study(folder: Path, study: type[Study], fingerprint: str | None = None) -> Outcome | None:
    """Read a finished study, of the same material if a fingerprint is given; None if a file is not as it was written."""
    if not (folder / STUDY).is_file():
        return None
    try:
        page = read_sealed(folder / STUDY)
        whole = all(sha256_file(folder / name) == digest for name, digest in page["files"].items())
        if not whole or page["schema"] != SCHEMA or fingerprint not in (None, page["material_sha256"]):
            return None
        frame = read_frame(folder)
        if len(frame) != page["rows"]:
            return None
        return Outcome(study, frame, tuple(page["sentences"]), page["unmet"])
    except (ArtifactError, OSError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class Significant(Column):
    """A column whose numbers have four significant digits; whole numbers have no decimals."""

    def number(self, value: float | None) -> str:
        """Format a number of this column.

        Examples:
            >>> [Significant("x").number(value) for value in (2580.0, 0.00324809, -1.23456)]
            ['2,580', '0.003248', '-1.235']
        """
        if value is None:
            return MISSING
        sign = "+" if self.signed else ""
        return f"{int(value):{sign},}" if float(value).is_integer() else f"{value:{sign}.4g}"


def tidy_table(outcome: Outcome) -> Table:
    """Return the frame of a study as a table, without keys that are empty in every row."""
    used = [name for name in outcome.frame.keys if any(row[name] not in (None, "") for row in outcome.frame)]
    columns = [Significant(name.replace("_", " ")) for name in (*used, "value")]
    rows: list[list[Cell]] = [[*(row[name] for name in used), row.estimate] for row in outcome.frame]
    return Table(columns, rows)


def write_report(folder: Path, outcomes: Sequence[Outcome], record: Mapping[str, Any]) -> Path:
    """Write the page of several studies into their folder."""
    images = record["images"]
    lead = (
        f"{record['identity'].get('model_id') or 'a model'}, layer {record['layer']}, beta {record['beta']:g}: "
        f"{images['evaluation']:,} evaluation and {images['calibration']:,} calibration images. Brackets are 95% bootstrap "
        f"intervals over images, {record['resamples']:,} draws, seed {record['seed']}."
    )
    page = Page("The paper's analyses", lead=lead, footer="Written by reweigh study.").add(contents(outcomes))
    for outcome in outcomes:
        add_study(page, folder / outcome.study.name, outcome)
    short = {name: value for name, value in record.items() if name != "identity"}
    page.section("Record", anchor="record").record(short, "Settings").record(
        record["identity"], "Identity of the model"
    )
    return page.write(folder / REPORT)


def contents(outcomes: Sequence[Outcome]) -> Html:
    """Link to the sections."""
    places = {one.study: one.study.place() if one.unmet is None else "not computed" for one in outcomes}
    links = [(study.name, study.title, place) for study, place in places.items()]
    return part("contents", [*links, ("record", "Record", "")])


def add_study(page: Page, folder: Path, outcome: Outcome) -> None:
    """Add one study: sentences, figure, further markup, table."""
    study = outcome.study
    page.section(study.title, anchor=study.name).text(study.place(), muted=True).text(*outcome.sentences)
    if outcome.unmet is not None:
        return
    add_drawings(page, folder, alt=f"Figure: {study.title}. {' '.join(outcome.sentences)}".strip())
    page.table(tidy_table(outcome))
    page.text("; ".join(f"{name}: {what}" for name, what in study.keys) + ".", muted=True)


def add_drawings(page: Page, folder: Path, *, alt: str, caption: str = "") -> None:
    """Add a study's drawing, embedded, and its further markup, if it wrote them."""
    if (drawing := folder / f"{FIGURE}.svg").is_file():
        data = base64.b64encode(drawing.read_bytes()).decode("ascii")
        page.add(part("file", f"data:image/svg+xml;base64,{data}", alt, caption))
    if (further := folder / FRAGMENT).is_file():
        page.add(Html(further.read_text(encoding="utf-8")))
