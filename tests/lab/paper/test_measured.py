"""Frames of studies fill the paper's tables by the names that the paper uses; other results fill theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reweigh.errors import InputError
from reweigh.files.seals import write_sealed
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.analyses.cost import EVIDENCE, Cost
from reweigh.lab.paper.analyses.references import (
    GLOBAL,
    MASS,
    MEDIAN,
    REDUCTION,
    SHUFFLED,
    SPECIFIC,
    References,
)
from reweigh.lab.paper.analyses.rescaling import (
    BOTH,
    CHANGE,
    CLOSED,
    COMPARED,
    EITHER,
    JACCARD,
    OCCURRENCES,
    SPEARMAN,
    STEPS,
    STRONGEST,
    WINNER,
    Rescaling,
)
from reweigh.lab.paper.analyses.tokens import ANOVA, BALANCED, BETWEEN, SIMPLE, WEIGHTED, WITHIN, Tokens
from reweigh.lab.paper.measured import read_results
from reweigh.lab.paper.published import published
from reweigh.lab.paper.study import Entry, Study, row
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.types import Summary

HALF = Estimate(0.5, 0.25, 0.75)
SHARE = Estimate(50.0, 25.0, 75.0)


def entries(study: type[Study], label: str, rows: list[Row]) -> dict[Entry, Any]:
    """What a study fills in of a table, without rows that the paper does not have."""
    found = study().fill(Frame(rows))[label]
    known = {entry for values in published()[label].values.values() for entry in values}
    return {entry: value for entry, value in found.items() if entry in known}


def test_every_label_of_a_study_is_the_paper_s() -> None:
    assert {label for name in STUDIES for label in STUDIES[name].labels} <= set(published())


def test_a_study_is_the_file_of_its_name() -> None:
    found = {name: (STUDIES[name].name, STUDIES[name].__module__) for name in STUDIES}
    assert found == {name: (name, f"reweigh.lab.paper.analyses.{name}") for name in STUDIES}
    assert all(sys.modules[module].__doc__ for _, module in found.values())


def test_rescaling() -> None:
    named = [
        (SPEARMAN, COMPARED),
        (JACCARD, EITHER),
        (STRONGEST, EITHER),
        (WINNER, STEPS),
        (CHANGE, OCCURRENCES),
    ]
    rows = [row(HALF, arm="probability", quantity=name, over=over, count=9) for name, over in named]
    other = Estimate(0.9, 0.8, 1.0)  # both sets edit: not what the paper reports
    rows += [
        row(other, arm="probability", quantity=JACCARD, over=BOTH, count=9),
        row(Estimate(0.0, 0.0, 0.0), arm="rank", quantity=CHANGE, over=OCCURRENCES, count=9),
        row(HALF, arm="equalization", quantity=CLOSED, over="candidate occurrences", count=9),
    ]
    found = entries(Rescaling, "tab:rescale-invariance", rows)
    assert found[Entry("probability", "Spearman")] == HALF
    assert found[Entry("probability", "Jaccard")] == HALF
    assert found[Entry("probability", "strongest changed %")] == SHARE
    assert found[Entry("probability", "winner changed %")] == SHARE
    assert found[Entry("equalization", "gap closed %")] == SHARE
    assert found[Entry("rank", "mean |change of s|")].value == 0.0


def test_tokens() -> None:
    rows = [
        row(HALF, quantity=name, weighting=weighting, least_images=least, tokens=9, observations=9)
        for name in (BETWEEN, WITHIN)
        for weighting, least in ((BALANCED, 1), (BALANCED, 5), (WEIGHTED, 1))
    ]
    rows += [
        row(HALF, quantity=name, weighting=BALANCED, least_images=5, tokens=9, observations=9)
        for name in (SIMPLE, ANOVA)
    ]
    found = entries(Tokens, "tab:variance-decomposition", rows)
    assert found[Entry("min. 1 image", "between %")] == SHARE
    assert found[Entry("min. 5 images", "within %")] == SHARE
    assert found[Entry("occurrence weighted", "between %")] == SHARE
    assert found[Entry("ICC", "simple")] == found[Entry("ICC", "ANOVA")] == HALF


def test_references() -> None:
    rows = [
        row(HALF, quantity=name, aggregate=aggregate, tokens=9, interval="")
        for name in (SPECIFIC, GLOBAL, SHUFFLED, REDUCTION)
        for aggregate in (MEDIAN, MASS)
    ]
    found = entries(References, "tab:token-reference-correspondence", rows)
    assert len(found) == len(rows)
    assert found[Entry("weighted mean", "reduction %")] == SHARE


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_cost_of_another_model_does_not_stand_under_the_studied_one(order: tuple[int, int]) -> None:
    rows = [row(375.0, quantity=EVIDENCE, case="my/model", unit="KiB")]
    cases = [("my/model", 1.01), ("my/model-large", 1.9)]
    for case, ratio in (cases[index] for index in order):
        rows.append(row(ratio, quantity="latency, cached evidence", case=case, unit="x greedy"))
    found = Cost().fill(Frame(rows))["tab:efficiency-accounting"]
    assert found[Entry("latency, cached evidence", "ReWEIGH")].value == 1.01


def test_the_only_measured_cost_is_left_out_if_it_is_of_another_model() -> None:
    rows = [row(375.0, quantity=EVIDENCE, case="my/model", unit="KiB")]
    rows.append(row(1.9, quantity="latency, cached evidence", case="my/model-large", unit="x greedy"))
    found = Cost().fill(Frame(rows))["tab:efficiency-accounting"]
    assert list(found) == [Entry("cache per image (KiB)", "ReWEIGH")]


def arm(name: str, value: float, *, edits: int | None = 0) -> dict[str, Any]:
    metric = {"value": value, "low": value - 2, "high": value + 2}
    figures = {figure: metric for figure in ("chair_s", "chair_i", "recall", "f1", "length")}
    counted = None if edits is None else {"escapes": edits}
    return {"arm": name, **figures, "fire": None if edits is None else 80.0, "edits": counted}


def test_an_ablation_fills_its_tables_and_permutations_count_as_their_mean(tmp_path: Path) -> None:
    mean = {
        "chair_s": 45.0,
        "chair_i": 45.0,
        "recall": 45.0,
        "f1": 45.0,
        "length": 45.0,
        "fire": 80.0,
        "escapes": 0,
    }
    page = {
        "model": "m",
        "benchmark": {"name": "world"},
        "records": 9,
        "layer": 1,
        "beta": 1.0,
        "arms": [
            arm("base", 50.0, edits=None),
            arm("full", 40.0),
            arm("zscore", 41.0),
            arm("shuffled-0", 60.0),
            arm("shuffled-1", 30.0),
        ],
        "shuffled": {"mean": mean, "lowest": {}, "highest": {}},
    }
    write_sealed(tmp_path / "ablation.json", page)
    found = read_results([tmp_path])
    components = found["tab:ablation-chair-detail"].values
    assert components[Entry("Full method", "Fire %")] == Estimate(80.0)
    assert components[Entry("Full method", "CHAIR_S")] == Estimate(40.0, 38.0, 42.0)
    assert components[Entry("Shuffled references", "CHAIR_S")] == Estimate(45.0)
    readouts = found["tab:normalized-readout-control"].values
    assert readouts[Entry("standardized logit, native", "F1")].value == 41.0
    assert Entry("Base", "Fire %") not in readouts


def test_a_comparison_fills_its_tables(tmp_path: Path) -> None:
    one, two = tmp_path / "chair", tmp_path / "amber"
    chair = {"CHAIR/CHAIR_S": {"value": 41.0}, "CHAIR/recall": {"value": 70.0}, "Cost/Lat.": {"value": 1.1}}
    rows = [{"method": name, "figures": chair} for name in ("Base (greedy)", "ReWEIGH")]
    write_sealed(one / "comparison.json", {"model": "m", "rows": rows})
    amber = {"AMBER, generative/CHAIR": {"value": 4.0}, "AMBER, discriminative/F1": {"value": 80.0}}
    amber["AMBER, generative/hal"] = {"value": None}
    write_sealed(two / "comparison.json", {"model": "m", "rows": [{"method": "ReWEIGH", "figures": amber}]})
    found = read_results([two, one])
    assert found["tab:chair-full"].values == {
        Entry(row, metric): Estimate(value)
        for row in ("Base", "ReWEIGH")
        for metric, value in (("CHAIR_S", 41.0), ("Recall", 70.0), ("Latency", 1.1))
    }
    assert found["tab:chair-amber"].values == found["tab:chair-full"].values | {
        Entry("ReWEIGH", "AMBER CHAIR"): Estimate(4.0),
        Entry("ReWEIGH", "AMBER F1"): Estimate(80.0),
        Entry("ReWEIGH", "AMBER Score"): Estimate(88.0),  # (100 - 4 + 80) / 2
    }
    assert found["tab:amber-full"].values[Entry("ReWEIGH", "AMBER")] == Estimate(88.0)


def test_only_figures_of_chair_fill_the_tables_of_chair(tmp_path: Path) -> None:
    figures = {"CHAIR/F1": {"value": 77.0}, "POPE/F1": {"value": 85.0}, "Cost/Lat.": {"value": 1.1}}
    page = {"model": "m", "rows": [{"method": "ReWEIGH", "figures": figures}]}
    write_sealed(tmp_path / "comparison.json", page)
    assert read_results([tmp_path])["tab:chair-full"].values == {
        Entry("ReWEIGH", "F1"): Estimate(77.0),
        Entry("ReWEIGH", "Latency"): Estimate(1.1),
    }


def rated(monkeypatch: pytest.MonkeyPatch, folder: Path, **runs: dict[str, Any]) -> Path:
    """Stand in for rated runs of MMHal-Bench, by the name of their folder."""
    scored = {}
    for name, about in runs.items():
        (folder / "mmhal" / name).mkdir(parents=True)
        metrics = {"score": Estimate(about["score"])}
        scorer = {"judge": {"model": about.get("judge", "j")}}
        summary = Summary.of([], benchmark="mmhal", metrics=metrics, scorer=scorer)
        scored[name] = Scored([], summary, record={"model": {"id": about.get("model", "m")}})
    monkeypatch.setattr("reweigh.lab.paper.measured.read_rated", lambda run: scored[run.name])
    return folder


def test_rated_runs_fill_their_table_under_their_own_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rated(monkeypatch, tmp_path, base={"score": 2.0}, vcd={"score": 2.5}, trial={"score": 9.0})
    found = read_results([tmp_path])["tab:mmhal-bench"]
    assert found.model == "m"
    assert {entry.row: value.value for entry, value in found.values.items()} == {
        "Base": 2.0,
        "VCD": 2.5,
        "trial": 9.0,
    }


@pytest.mark.parametrize("other", [{"model": "n"}, {"judge": "k"}])
def test_rated_runs_of_different_models_or_judges_fill_no_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: dict[str, str]
) -> None:
    rated(monkeypatch, tmp_path, base={"score": 2.0}, vcd={"score": 2.5, **other})
    with pytest.raises(InputError, match="vcd"):
        read_results([tmp_path])
