"""Read finished results into the paper's tables: studies, an ablation, comparisons, rated runs. Nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.seals import read_sealed
from reweigh.lab.arms.compare.report import COST
from reweigh.lab.arms.experiment import STUDY
from reweigh.lab.estimate import Estimate
from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.folder import read_study
from reweigh.lab.paper.material import BASE, EMBEDDED, FIGURES
from reweigh.lab.paper.study import Entries, Entry
from reweigh.lab.runs.results import Scored, read_scored
from reweigh.rivals import DECODERS

ABLATION, COMPARISON = "ablation.json", "comparison.json"
SHUFFLED = "shuffled"
ARMS = {
    "full": "Full method",
    "global": "Global reference",
    SHUFFLED: "Shuffled references",
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
COMPARED = {"recall": "Recall", "Lat.": "Latency", "Mem.": "Memory"}
"""Columns of a comparison with another name in the paper."""
AMBER = {
    "cover": "Cover",
    "hal": "Hal.",
    "cog": "Cog.",
    "accuracy": "Acc.",
    "precision": "Precision",
    "recall": "Recall",
    "unparsed": "Unparsed %",
}
AMBER_SCORE = "AMBER Score"
RATED = {
    ("mmhal", "score"): "MMHal score",
    ("mmhal", "hallucination_rate"): "MMHal hallucination rate",
    ("mmvet", "total"): "MM-Vet",
}
"""Figures of judged benchmarks, and the paper's names."""
METRICS = {**FIGURES, "length": "Length", "fire": "Fire %", "escapes": "Escapes"}


@dataclass(frozen=True)
class Measured:
    """What was measured for one table or figure.

    Attributes:
        model: What was run.
        on: On what.
        by: The command that ran it.
        values: The numbers; undefined ones are left out.
        folder: The folder of the study, with its drawing and further markup; None for other results.
        sentences: What the study says.
    """

    model: str
    on: str
    by: str
    values: Entries
    folder: Path | None = None
    sentences: tuple[str, ...] = ()


def read_results(folders: Sequence[Path]) -> dict[str, Measured]:
    """Read everything in some folders; a later folder replaces what an earlier one gave.

    Comparisons of one model on several benchmarks, in several folders, fill one table.
    """
    found: dict[str, Measured] = {}
    for folder in folders:
        found |= read_studies(folder)
        if (folder / ABLATION).is_file():
            found |= read_ablation(folder)
        compared = read_comparison(folder) if (folder / COMPARISON).is_file() else {}
        for label, new in compared.items():
            old = found.get(label)
            joins = old is not None and (old.model, old.by) == (new.model, new.by)
            found[label] = replace(new, values={**old.values, **new.values}) if old and joins else new
        found |= read_judged(folder)
    return found


def read_studies(folder: Path) -> dict[str, Measured]:
    """Read the finished studies of a folder."""
    found: dict[str, Measured] = {}
    for name in STUDIES:
        outcome = read_study(folder / name, STUDIES[name])
        if outcome is None or outcome.unmet is not None:
            continue
        record = read_sealed(folder / name / STUDY)["material"]
        model = str(record["identity"].get("model_id") or "a model")
        on = f"{record['images']['evaluation']:,} evaluation images, layer {record['layer']}, beta {record['beta']:g}"
        for label, values in outcome.study().fill(outcome.frame).items():
            by = f"reweigh study {name}"
            found[label] = Measured(model, on, by, defined(values), folder / name, outcome.sentences)
    return found


def model_name(given: str) -> str:
    """Return a model's name as studies have it: commands call the embedded one ``world``, its tables otherwise."""
    return EMBEDDED if given == "world" else given


def defined(values: Entries) -> dict[Entry, Estimate]:
    """Leave out undefined numbers."""
    return {entry: value for entry, value in values.items() if value.value is not None}


def read_page(path: Path, command: str) -> dict[str, Any]:
    """Read the sealed numbers of an experiment."""
    try:
        return read_sealed(path)
    except ArtifactError as error:
        raise ArtifactError(
            error.message, hint=f"run the same `{command}` again: its answers are kept"
        ) from error


def read_ablation(folder: Path) -> dict[str, Measured]:
    """Read an ablation; the permutations count as their mean."""
    page = read_page(folder / ABLATION, "reweigh ablate")
    on = f"{page['records']:,} records of {page['benchmark']['name']}, layer {page['layer']}, beta {page['beta']:g}"
    arms: dict[str, dict[str, Estimate]] = {}
    for arm in page["arms"]:
        if arm["arm"].startswith(f"{SHUFFLED}-"):
            mean = page[SHUFFLED]["mean"]
            arms[SHUFFLED] = {METRICS[name]: Estimate(mean.get(name)) for name in METRICS}
            continue
        numbers = {name: Estimate(**arm[name]) for name in (*FIGURES, "length")}
        escapes = None if arm["edits"] is None else arm["edits"]["escapes"]
        numbers |= {"fire": Estimate(arm["fire"]), "escapes": Estimate(escapes)}
        arms[arm["arm"]] = {METRICS[name]: value for name, value in numbers.items()}

    def measured(names: Mapping[str, str]) -> Measured:
        values = {
            Entry(names[arm], metric): value
            for arm, numbers in arms.items()
            if arm in names
            for metric, value in numbers.items()
        }
        return Measured(model_name(page["model"]), on, "reweigh ablate", defined(values))

    return {
        "tab:signal-ablation": measured(ARMS),
        "tab:ablation-chair-detail": measured(ARMS),
        "tab:normalized-readout-control": measured(READOUTS),
    }


def read_comparison(folder: Path) -> dict[str, Measured]:
    """Read a comparison of decoders; AMBER's figures have a table of their own, and a score of both halves."""
    page = read_page(folder / COMPARISON, "reweigh compare")
    found: dict[Entry, Estimate] = {}
    amber: dict[Entry, Estimate] = {}
    for row in page["rows"]:
        name = "Base" if row["method"].lower().startswith("base") else row["method"]
        chair = next((key.rpartition("/")[0] for key in row["figures"] if key.startswith("CHAIR")), None)
        for key, cell in row["figures"].items():
            group, _, metric = key.rpartition("/")
            if cell["value"] is None:
                continue
            if group.startswith("AMBER"):
                amber[Entry(name, AMBER.get(metric, metric))] = Estimate(cell["value"])
            elif group in (chair, COST):  # the F1 of POPE is not that of CHAIR
                found[Entry(name, COMPARED.get(metric, metric))] = Estimate(cell["value"])
        wrong, f1 = (amber.get(Entry(name, metric)) for metric in ("CHAIR", "F1"))
        if wrong is not None and f1 is not None:
            amber[Entry(name, "AMBER")] = Estimate((100 - wrong.number + f1.number) / 2)
    both = found | {
        Entry(entry.row, AMBER_SCORE if entry.metric == "AMBER" else f"AMBER {entry.metric}"): value
        for entry, value in amber.items()
    }
    tables = {"tab:chair-amber": both, "tab:chair-full": found, "tab:amber-full": amber}
    return {
        label: Measured(model_name(page["model"]), "the records of its benchmarks", "reweigh compare", values)
        for label, values in tables.items()
        if values
    }


def read_judged(folder: Path) -> dict[str, Measured]:
    """Read rated runs of one model, one folder for each benchmark and method: ``mmhal/vcd`` and so on."""
    titles = {**{name: DECODERS[name].title for name in DECODERS}, BASE: "Base"}
    found: dict[Entry, Estimate] = {}
    models: dict[str, Path] = {}
    for benchmark in dict.fromkeys(name for name, _ in RATED):
        judges: list[tuple[Path, Mapping[str, Any]]] = []
        for run in sorted((folder / benchmark).glob("*")):
            scored = read_rated(run)
            if scored is None:
                continue
            if model := (scored.record or {}).get("model", {}).get("id"):
                models.setdefault(model_name(model), run)
            judges.append((run, scored.judging))
            if judges[0][1] != scored.judging:
                raise InputError(
                    f"{judges[0][0]} and {run} were rated differently", hint="score both with the same judge"
                )
            for figure, value in scored.summary.metrics.items():
                if (benchmark, figure) in RATED:
                    found[Entry(titles.get(run.name, run.name), RATED[benchmark, figure])] = value
    if len(models) > 1:
        (first, one), (second, other), *_ = models.items()
        raise InputError(
            f"{one} is a run of {first} and {other} one of {second}",
            hint="keep the rated runs of each model in a folder of their own",
        )
    on, model = "the questions of MMHal-Bench and MM-Vet", next(iter(models), "a model")
    return {"tab:mmhal-bench": Measured(model, on, "reweigh eval score", found)} if found else {}


def read_rated(run: Path) -> Scored | None:
    """Read a run that a judge rated; None if none did."""
    with suppress(InputError):
        return read_scored(run)
    return None
