"""What finished results give for the paper's tables.

Results are recognised by their files: a study folder (``NAME/study.json``), an ablation (``ablation.json``) and a comparison
(``comparison.json``). Nothing is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reweigh.files.artifacts import read_json
from reweigh.files.seals import read_sealed
from reweigh.paper.reproduction.rows import FIGURES, STUDIES, Found, number, put

ARMS = {
    "full": "Full method",
    "global": "Global reference",
    "shuffled": "Shuffled references",
    "mismatched": "Mismatched evidence",
    "no-abstention": "No abstention",
    "bidirectional": "Bidirectional update",
    "unbounded": "Unbounded update",
}
READOUTS = {
    "base": "Base",
    "full": "DMRR, native",
    "rank-zscore-matched": "DMRR, matched",
    "zscore": "standardized logit, native",
    "zscore-matched": "standardized logit, matched",
    "mean-probability": "mean probability, native",
    "standardized-probability": "standardized probability, native",
}


@dataclass
class Measured:
    """What was measured for one table or figure.

    Attributes:
        model: What was run.
        on: On what.
        by: The command that ran it.
        values: The numbers.
        figure: The drawing of the study, if it has one.
        fragment: Further markup of the study, if it has some.
        sentences: What the study says.
    """

    model: str
    on: str
    by: str
    values: Found = field(default_factory=dict)
    figure: Path | None = None
    fragment: Path | None = None
    sentences: tuple[str, ...] = ()


def read_study_folder(folder: Path) -> dict[str, Measured]:
    """What the finished studies of a folder give."""
    found: dict[str, Measured] = {}
    for name, read in STUDIES.items():
        page = folder / name / "study.json"
        if not page.is_file():
            continue
        record = read_sealed(page)["material"]
        table = read_json(folder / name / "table.json")
        if table["unmet"] is not None:
            continue
        model = str(record["identity"].get("model_id") or "a model")
        images = f"{record['images']['evaluation']:,} evaluation images, layer {record['layer']}, beta {record['beta']:g}"
        figure, fragment = folder / name / "figure.svg", folder / name / "fragment.html"
        for label, values in read(table["rows"]).items():
            found[label] = Measured(
                model,
                images,
                f"reweigh study {name}",
                values,
                figure if figure.is_file() else None,
                fragment if fragment.is_file() else None,
                tuple(table["sentences"]),
            )
    return found


def read_ablation(folder: Path) -> dict[str, Measured]:
    """What an ablation gives."""
    page = read_json(folder / "ablation.json")
    on = f"{page['records']:,} records of {page['benchmark']['name']}, layer {page['layer']}, beta {page['beta']:g}"
    components, readouts = Found(), Found()
    for arm in page["arms"]:
        for found, names in ((components, ARMS), (readouts, READOUTS)):
            name = names.get(arm["arm"])
            if name is None and arm["arm"] == "shuffled-0":
                name = names.get("shuffled")
            if name is None:
                continue
            for figure, metric in FIGURES.items():
                put(found, name, metric, number(arm[figure]))
            put(found, name, "Length", number(arm["length"]))
            put(found, name, "Fire %", arm["fire"])
            put(found, name, "Escapes", None if arm["edits"] is None else arm["edits"]["escapes"])
    return {
        label: Measured(str(page["model"]), on, "reweigh ablate", values)
        for label, values in (
            ("tab:signal-ablation", components),
            ("tab:ablation-chair-detail", components),
            ("tab:normalized-readout-control", readouts),
        )
    }


def read_comparison(folder: Path) -> dict[str, Measured]:
    """What a comparison of decoders gives."""
    page = read_json(folder / "comparison.json")
    found = Found()
    for row in page["rows"]:
        name = "Base" if row["method"].lower() in ("base", "greedy") else row["method"]
        for key, cell in row["figures"].items():
            metric = {"recall": "Recall", "latency": "Latency", "memory": "Memory"}.get(
                key.rpartition("/")[2].lower(), key.rpartition("/")[2]
            )
            put(found, name, metric, cell["value"])
    about = Measured(str(page["model"]), "the records of its benchmarks", "reweigh compare", found)
    return {"tab:chair-amber": about, "tab:chair-full": about}


def read_results(folders: Sequence[Path]) -> dict[str, Measured]:
    """Everything found in some folders; what a later folder gives replaces what an earlier one gave."""
    found: dict[str, Measured] = {}
    for folder in folders:
        found |= read_study_folder(folder)
        if (folder / "ablation.json").is_file():
            found |= read_ablation(folder)
        if (folder / "comparison.json").is_file():
            found |= read_comparison(folder)
    return found
