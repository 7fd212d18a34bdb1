"""Running studies into a folder: one folder for each, a finished one is not computed again.

A study's folder holds ``table.csv`` and ``table.json`` (the same numbers), ``figure.png`` and ``figure.svg``,
``sentences.md``, what else the study wrote, and last ``study.json``: what it was computed from, and the hash of each file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import drop_abandoned, sha256_file, sha256_json, write_json, write_text
from reweigh.files.seals import read_sealed, write_sealed
from reweigh.paper.studies import STUDIES
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import Outcome, Row, Study, compute
from reweigh.progress import bar

SCHEMA = 1
PAGE, TABLE_CSV, TABLE_JSON, SENTENCES, FIGURE = (
    "study.json",
    "table.csv",
    "table.json",
    "sentences.md",
    "figure",
)
FRAGMENT = "fragment.html"
"""Markup that a study may add to its part of the page."""


def run_studies(
    names: Sequence[str], material: Material, out: Path, *, show: bool | None = None
) -> list[Outcome]:
    """Run studies by name into folders below ``out``; one that is finished there is read."""
    outcomes = []
    with bar("studies", total=len(names), unit="study", show=show) as progress:
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
    """Every study of the same material that is finished in a folder, in the order of the paper."""
    kept = (
        read_study(out / name, STUDIES[name], fingerprint_of(STUDIES[name], material)) for name in STUDIES
    )
    return [outcome for outcome in kept if outcome is not None]


def fingerprint_of(study: type[Study], material: Material) -> str:
    """Hash of what a study's results depend on."""
    inputs = study().inputs(material)
    return (
        sha256_json({"material": material.fingerprint, "inputs": inputs}) if inputs else material.fingerprint
    )


def write_study(folder: Path, outcome: Outcome, material: Material, fingerprint: str) -> None:
    """Write a study's files; the page that vouches for them comes last."""
    (folder / PAGE).unlink(missing_ok=True)
    drop_abandoned(folder)
    names = [column.name for column in outcome.study.columns]
    write_text(folder / TABLE_CSV, to_csv(names, outcome.rows))
    write_json(folder / TABLE_JSON, outcome.to_json())
    write_text(folder / SENTENCES, "\n\n".join(outcome.sentences) + "\n")
    files = [TABLE_CSV, TABLE_JSON, SENTENCES]
    if outcome.study.draws and outcome.rows:
        outcome.study().draw(outcome.rows, folder / FIGURE)
        files += [f"{FIGURE}.png", f"{FIGURE}.svg"]
    if outcome.rows:
        files += outcome.study().extras(outcome.rows, material, folder)
    page = {
        "schema": SCHEMA,
        "study": outcome.study.name,
        "material": material.record(),
        "material_sha256": fingerprint,
        "files": {name: sha256_file(folder / name) for name in files},
    }
    write_sealed(folder / PAGE, page)


def read_study(folder: Path, study: type[Study], fingerprint: str) -> Outcome | None:
    """A finished study of the same material; ``None`` if it is another's, or a file of it is not what was written."""
    if not (folder / PAGE).is_file():
        return None
    try:
        page = read_sealed(folder / PAGE)
        whole = all(sha256_file(folder / name) == digest for name, digest in page["files"].items())
    except (ArtifactError, OSError, KeyError):
        return None
    if not whole or page.get("schema") != SCHEMA or page.get("material_sha256") != fingerprint:
        return None
    kept: dict[str, Any] = json.loads((folder / TABLE_JSON).read_text(encoding="utf-8"))
    return Outcome(study, tuple(kept["rows"]), tuple(kept["sentences"]), kept["unmet"])


def to_csv(names: Sequence[str], rows: Iterable[Row]) -> str:
    """The rows as CSV, an empty cell where there is no value; numbers are written in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in names])
    return text.getvalue()
