"""Read finished results into the paper's tables, by the keys of their frames. Nothing is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.seals import read_sealed
from reweigh.lab.arms.compare.cost import CACHED, LATENCY, MEMORY
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame
from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.folder import read_study
from reweigh.lab.paper.material import BASE, FIGURES, model_name
from reweigh.lab.paper.protocol import protocol
from reweigh.lab.paper.study import Entries, Entry
from reweigh.lab.read import STUDY
from reweigh.lab.runs.record import RESULTS
from reweigh.lab.runs.results import Scored, read_scored
from reweigh.lab.tasks import find_benchmark
from reweigh.lab.views.report import FRAME, read_frame
from reweigh.rivals import DECODERS

FULL, SHUFFLED, RANK_ARM = "full", "shuffled", "reweigh"
CHAIR = {**FIGURES, "length": "Length", "fire_steps": "Fire %", "escaped_steps": "Escapes"}
GENERATIVE = {"chair": "CHAIR", "cover": "Cover", "hal": "Hal.", "cog": "Cog."}
DISCRIMINATIVE = {
    "accuracy": "Acc.",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "unparsed": "Unparsed %",
    "answered_yes": "yes",
    "answered_no": "no",
}
AMBER = {"amber-generative": GENERATIVE, "amber-discriminative": DISCRIMINATIVE}
COSTS = {CACHED: "Latency", LATENCY: "Latency", MEMORY: "Memory"}
"""The paper's main table has the latency with cached evidence; methods without a cache have one latency."""
ABSTENTION = ("AMBER yes", "AMBER no", "AMBER F1")
RATED = {
    ("mmhal", "score"): "MMHal score",
    ("mmhal", "hallucination_rate"): "MMHal hallucination rate",
    ("mmvet", "total"): "MM-Vet",
}
"""Figures of judged benchmarks, and the paper's names."""
UNTOLD = {"records", "vocabulary", "ground_truth", "language"}
"""What a scorer records and a page of the paper leaves to the run's own page."""


@dataclass(frozen=True)
class Measured:
    """What one model was measured to have in a table or figure.

    Attributes:
        model: What was run.
        on: On how many records of what, and how they were scored.
        by: The command that ran it.
        values: The numbers; undefined ones are left out.
        folder: The folder of the study, with its drawing and further markup; None for other results.
        sentences: What the study says.
        runs: Scored runs of the base and of ReWEIGH, of which an example is shown.
    """

    model: str
    on: str
    by: str
    values: Entries
    folder: Path | None = None
    sentences: tuple[str, ...] = ()
    runs: tuple[Path, Path] | None = None

    @property
    def name(self) -> str:
        """The paper's name of the model, if it is one of the paper's."""
        known = protocol().model(self.model)
        return self.model if known is None else known[0]

    def joined(self, other: Measured) -> Measured:
        """Return both together; the other's numbers win."""
        on = "; ".join(dict.fromkeys((self.on, other.on)))
        return replace(other, on=on, values={**self.values, **other.values})


def read_results(folders: Sequence[Path]) -> dict[str, list[Measured]]:
    """Read everything in some folders, for each label one entry for each model.

    What one command measured in several folders fills one table; what another measured later replaces it.
    """
    found: dict[str, dict[str, Measured]] = {}
    for folder in folders:
        for label, new in (*read_studies(folder), *read_arms(folder), *read_judged(folder)):
            models = found.setdefault(label, {})
            old = models.get(new.name)
            models[new.name] = old.joined(new) if old is not None and old.by == new.by else new
    return {label: list(models.values()) for label, models in found.items()}


def read_studies(folder: Path) -> Iterator[tuple[str, Measured]]:
    """Yield what the finished studies of a folder fill in."""
    for name in STUDIES:
        outcome = read_study(folder / name, STUDIES[name])
        if outcome is None or outcome.unmet is not None:
            continue
        record = read_sealed(folder / name / STUDY)["material"]
        model = str(record["identity"].get("model_id") or "a model")
        images = f"{record['images']['evaluation']:,} evaluation images"
        on = f"{outcome.frame.about.get('on', images)}, layer {record['layer']}, beta {record['beta']:g}"
        for label, values in outcome.study().fill(outcome.frame).items():
            by = f"reweigh study {name}"
            known = defined(values)
            if known or label.startswith("fig:"):
                yield label, Measured(model, on, by, known, folder / name, outcome.sentences)


def defined(values: Entries) -> dict[Entry, Estimate]:
    """Leave out undefined numbers."""
    return {entry: value for entry, value in values.items() if value.value is not None}


def read_arms(folder: Path) -> Iterator[tuple[str, Measured]]:
    """Yield what a comparison or an ablation fills in, from its frame."""
    if not (folder / FRAME).is_file():
        return
    try:
        frame = read_frame(folder)
    except ArtifactError as error:
        hint = "run the same command again: its answers are kept"
        raise ArtifactError(error.message, hint=hint) from error
    if frame.keys != ("benchmark", "arm", "figure", AGAINST):
        return
    ablation = FULL in frame.distinct("arm")
    by = "reweigh ablate" if ablation else "reweigh compare"
    tables = (ablated if ablation else compared)(frame.values())
    for label, values in {**tables, "tab:evaluation-inventory": inventory(frame)}.items():
        if known := defined(values):
            yield label, Measured(model_name(str(frame.about["model"])), records_of(frame), by, known)
    yield from example_of(folder, frame, by)


def records_of(frame: Frame) -> str:
    """Say on how many records of each benchmark the figures are, and how they were scored."""
    said = []
    for name, about in frame.about.get("benchmarks", {}).items():
        flags = ", ".join(
            f"{key}: {value}"
            for key, value in about["scorer"].items()
            if isinstance(value, (str, int, float)) and key not in UNTOLD
        )
        said.append(
            f"{about['records']:,} records of {find_benchmark(name).title}" + (f" ({flags})" if flags else "")
        )
    return "; ".join(said) or "the records of its benchmarks"


def example_of(folder: Path, frame: Frame, by: str) -> Iterator[tuple[str, Measured]]:
    """Yield the descriptions of AMBER by the base and by ReWEIGH, if both were compared."""
    base, edited = (folder / "amber-generative" / arm for arm in (BASE, RANK_ARM))
    if (base / RESULTS).is_file() and (edited / RESULTS).is_file():
        words = "the image on which ReWEIGH names the most fewer objects that are not there"
        yield (
            "fig:amber-examples",
            Measured(model_name(str(frame.about["model"])), words, by, {}, runs=(base, edited)),
        )


def inventory(frame: Frame) -> Entries:
    """Return how many records of each benchmark were answered, and the longest answers."""
    titles = {name: one["title"] for name, one in protocol()["benchmarks"].items()}
    columns = {"records": "Records", "new_tokens": "New tokens"}
    return {
        Entry(titles[name], metric): Estimate(about.get(key))
        for name, about in frame.about.get("benchmarks", {}).items()
        if name in titles
        for key, metric in columns.items()
    }


def compared(frame: Frame) -> dict[str, Entries]:
    """Return the tables that compare decoders; AMBER's figures have a table of their own."""
    titles = {name: DECODERS[name].title for name in DECODERS} | protocol()["methods"]
    rows = {str(arm): titles.get(str(arm), str(arm)) for arm in frame.distinct("arm")}
    chair, amber = chair_values(frame, rows), amber_values(frame, rows)
    costs: dict[Entry, Estimate] = {}
    for arm, title in rows.items():
        known = {
            name: frame.get(benchmark=None, arm=arm, figure=name, against=None) for name in reversed(COSTS)
        }
        costs |= {Entry(title, COSTS[name]): value for name, value in known.items() if value is not None}
    both = chair | amber_part(amber) | costs
    return {"tab:chair-amber": both, "tab:chair-full": chair, "tab:amber-full": amber}


def ablated(frame: Frame) -> dict[str, Entries]:
    """Return the tables that an ablation fills; permutations count as their mean."""
    arms, settings = [str(arm) for arm in frame.distinct("arm")], protocol()
    components = settings["ablation"]["arms"]

    def chosen(names: Mapping[str, str]) -> dict[str, str]:
        permuted = {
            arm: names[SHUFFLED] for arm in arms if arm.startswith(f"{SHUFFLED}-") and SHUFFLED in names
        }
        return {**{arm: names[arm] for arm in arms if arm in names}, **permuted}

    def tables(names: Mapping[str, str]) -> tuple[dict[Entry, Estimate], dict[Entry, Estimate]]:
        return chair_values(frame, chosen(names)), amber_values(frame, chosen(names))

    chair, amber = tables(components)
    return {
        "tab:signal-ablation": chair | amber_part(amber),
        "tab:ablation-chair-detail": chair,
        "tab:ablation-amber-detail": amber,
        "text:abstention": {
            one: value for one, value in amber_part(amber).items() if one.metric in ABSTENTION
        },
        "tab:normalized-readout-control": tables(settings["readouts"]["arms"])[0],
    }


def chair_values(frame: Frame, rows: Mapping[str, str]) -> dict[Entry, Estimate]:
    """Return the figures of CHAIR, or of a benchmark with its figures."""
    found = frame.pick(figure="chair_s").rows
    return values_of(frame, str(found[0]["benchmark"]), CHAIR, rows) if found else {}


def amber_values(frame: Frame, rows: Mapping[str, str]) -> dict[Entry, Estimate]:
    """Return the figures of both halves of AMBER, and the score that joins them."""
    found: dict[Entry, Estimate] = {}
    for benchmark, figures in AMBER.items():
        found |= values_of(frame, benchmark, figures, rows)
    for row in dict.fromkeys(rows.values()):
        wrong, f1 = (found.get(Entry(row, metric)) for metric in ("CHAIR", "F1"))
        if wrong is not None and f1 is not None and wrong.value is not None and f1.value is not None:
            found[Entry(row, "AMBER")] = Estimate((100 - wrong.value + f1.value) / 2)
    return found


def amber_part(amber: Entries) -> dict[Entry, Estimate]:
    """Return the figures of AMBER as tables call them that have those of CHAIR too."""
    return {
        Entry(row, "AMBER Score" if metric == "AMBER" else f"AMBER {metric}"): value
        for (row, metric), value in amber.items()
    }


def values_of(
    frame: Frame, benchmark: str, figures: Mapping[str, str], rows: Mapping[str, str]
) -> dict[Entry, Estimate]:
    """Return some figures of a benchmark; arms that share a row count as their mean, without interval."""
    found: dict[Entry, list[Estimate]] = {}
    for one in frame.pick(benchmark=benchmark, arm=set(rows), figure=set(figures)):
        entry = Entry(rows[str(one["arm"])], figures[str(one["figure"])])
        found.setdefault(entry, []).append(one.estimate)
    return {entry: some[0] if len(some) == 1 else _mean(some) for entry, some in found.items()}


def _mean(values: Sequence[Estimate]) -> Estimate:
    known = [one.value for one in values if one.value is not None]
    return Estimate(fmean(known) if len(known) == len(values) else None)


def read_judged(folder: Path) -> Iterator[tuple[str, Measured]]:
    """Yield rated runs, one folder for each benchmark and method: ``mmhal/vcd`` and so on."""
    titles = {name: DECODERS[name].title for name in DECODERS} | protocol()["methods"]
    found: dict[str, dict[Entry, Estimate]] = {}
    told: dict[str, dict[str, None]] = {}
    for benchmark in dict.fromkeys(name for name, _ in RATED):
        judges: list[tuple[Path, Mapping[str, Any]]] = []
        for run in sorted((folder / benchmark).glob("*")):
            scored = read_rated(run)
            if scored is None:
                continue
            judges.append((run, scored.judging))
            if judges[0][1] != scored.judging:
                raise InputError(
                    f"{judges[0][0]} and {run} were rated differently", hint="score both with the same judge"
                )
            model = model_name((scored.record or {}).get("model", {}).get("id") or "a model")
            judge = (scored.judging.get("judge") or {}).get("model", "a judge")
            words = f"{scored.summary.n:,} records of {scored.benchmark.title} (rated by {judge})"
            told.setdefault(model, {})[words] = None
            for figure, value in scored.summary.metrics.items():
                if (benchmark, figure) in RATED:
                    row = titles.get(run.name, run.name)
                    found.setdefault(model, {})[Entry(row, RATED[benchmark, figure])] = value
    for model, values in found.items():
        yield (
            "tab:mmhal-bench",
            Measured(model, "; ".join(told[model]), "reweigh eval score", defined(values)),
        )


def read_rated(run: Path) -> Scored | None:
    """Read a run that a judge rated; None if none did."""
    with suppress(InputError):
        return read_scored(run)
    return None
