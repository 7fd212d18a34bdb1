"""Running studies into a folder: one folder per study; a finished one is not computed again.

A study's folder contains ``frame.json`` (which ``reweigh.read`` reads) and ``table.csv`` with the same numbers,
``figure.png`` and ``figure.svg``, ``sentences.md``, whatever else the study wrote, and last ``study.json``: what it was
computed from, its sentences, the number of rows, and the hash of each file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError
from reweigh.estimate import Estimate
from reweigh.experiments.experiment import FRAME, read_frame, write_frame
from reweigh.files.artifacts import (
    drop_abandoned,
    read_json,
    sha256_file,
    sha256_json,
)
from reweigh.files.outputs import claim, write_output, write_sealed_output
from reweigh.files.seals import altered, read_sealed
from reweigh.paper.analyses import STUDIES
from reweigh.paper.material import Material
from reweigh.paper.study import FIGURE, Outcome, Study, compute, row
from reweigh.progress import bar
from reweigh.results.frame import AGAINST, Frame, Row

SCHEMA, EARLIER_SCHEMA = 2, 1
PAGE, TABLE, SENTENCES = "study.json", "table.csv", "sentences.md"
EARLIER_TABLE = "table.json"
GRID = ("chair_s", "chair_i", "recall", "f1")


def run_studies(
    names: Sequence[str], material: Material, out: Path, *, show: bool | None = None
) -> list[Outcome]:
    """Run studies by name into folders below ``out``; finished ones are read."""
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


def claim_study(folder: Path, study: type[Study], *, force: bool = False) -> None:
    """Refuse a folder with files of others under the names that a study writes."""
    names = [PAGE, FRAME, TABLE, SENTENCES, f"{FIGURE}.png", f"{FIGURE}.svg", *study.files]
    claim([folder / name for name in names], force=force, beside=folder / PAGE)


def write_study(folder: Path, outcome: Outcome, material: Material, fingerprint: str) -> None:
    """Write a study's files; the page that vouches for them comes last."""
    claim_study(folder, outcome.study)
    (folder / PAGE).unlink(missing_ok=True)
    drop_abandoned(folder)
    write_frame(outcome.frame, folder)
    write_output(folder / TABLE, outcome.frame.to_csv())
    write_output(folder / SENTENCES, "\n\n".join(outcome.sentences) + "\n")
    files = [FRAME, TABLE, SENTENCES]
    if outcome.study.draws and outcome.frame:
        outcome.study().draw(outcome.frame, folder / FIGURE)
        files += [f"{FIGURE}.png", f"{FIGURE}.svg"]
    if outcome.frame:
        files += outcome.study().extras(outcome.frame, material, folder)
    page = {
        "schema": SCHEMA,
        "study": outcome.study.name,
        "material": material.record(),
        "material_sha256": fingerprint,
        "rows": len(outcome.frame),
        "sentences": list(outcome.sentences),
        "unmet": outcome.unmet,
        "files": {name: sha256_file(folder / name) for name in files},
    }
    write_sealed_output(folder / PAGE, page)


def read_study(folder: Path, study: type[Study], fingerprint: str | None = None) -> Outcome | None:
    """A finished study, of the same material if a fingerprint is given; ``None`` if a file is not as it was written."""
    if not (folder / PAGE).is_file():
        return None
    try:
        page = read_sealed(folder / PAGE)
        if page["schema"] == EARLIER_SCHEMA and fingerprint is None:
            return read_earlier(folder, study, page["files"])
        whole = all(sha256_file(folder / name) == digest for name, digest in page["files"].items())
        if not whole or page["schema"] != SCHEMA or fingerprint not in (None, page["material_sha256"]):
            return None
        frame = read_frame(folder)
        if len(frame) != page["rows"]:
            return None
        return Outcome(study, frame, tuple(page["sentences"]), page["unmet"])
    except (ArtifactError, OSError, KeyError):
        return None


def read_earlier(folder: Path, study: type[Study], files: Mapping[str, str]) -> Outcome:
    """A study that an earlier version finished; its table must have the hash that its page names.

    Its differences have " minus " and a reference in the quantity, a grid has one column per figure, cases have a score.
    """
    if sha256_file(folder / EARLIER_TABLE) != files[EARLIER_TABLE]:
        raise altered(folder / EARLIER_TABLE)
    kept = read_json(folder / EARLIER_TABLE)
    rows = [new for old in kept["rows"] for new in _rows(study, old)]
    return Outcome(study, Frame(rows), tuple(kept["sentences"]), kept["unmet"])


def _rows(study: type[Study], old: Mapping[str, Any]) -> Iterator[Row]:
    keys = {name: old.get(name) for name, _ in study.keys}
    if study.name == "grid":
        for figure in GRID:
            yield row(old[figure], **{**keys, "quantity": figure})
    elif study.name == "cases":
        yield row(old["score"], **keys)
    else:
        if AGAINST in keys:
            quantity, _, against = str(old["quantity"]).partition(" minus ")
            keys |= {"quantity": quantity, AGAINST: against or None}
        yield row(Estimate(old["value"], old["low"], old["high"]), **keys)
