"""Frames of studies fill the paper's tables by the names that the paper uses; other results fill theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reweigh.errors import InputError
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
from reweigh.lab.paper.analyses.rules import Rules
from reweigh.lab.paper.analyses.tokens import ANOVA, BALANCED, BETWEEN, SIMPLE, WEIGHTED, WITHIN, Tokens
from reweigh.lab.paper.measured import Measured, read_results
from reweigh.lab.paper.published import published
from reweigh.lab.paper.study import Entry, Study, row
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.types import Summary
from reweigh.lab.views.report import write_frame

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


def results(folder: Path, figures: dict[tuple[str | None, str, str], Estimate | float], **about: Any) -> Path:
    """The frame of an experiment: figures by benchmark, arm and name."""
    rows = [
        Row(
            {"benchmark": benchmark, "arm": arm, "figure": figure, "against": None},
            value if isinstance(value, Estimate) else Estimate(value),
        )
        for (benchmark, arm, figure), value in figures.items()
    ]
    write_frame(Frame(rows, {"model": "m", **about}), folder)
    return folder


def only(found: dict[str, list[Measured]], label: str) -> Measured:
    [one] = found[label]
    return one


def test_an_ablation_fills_its_tables_and_permutations_count_as_their_mean(tmp_path: Path) -> None:
    arms = {"base": 50.0, "full": 40.0, "zscore": 41.0, "shuffled-0": 60.0, "shuffled-1": 30.0}
    figures = {
        ("world", arm, name): Estimate(value, value - 2, value + 2)
        for arm, value in arms.items()
        for name in ("chair_s", "f1")
    }
    extra = {("world", arm, "fire_steps"): 80.0 for arm in arms if arm != "base"}
    found = read_results(
        [results(tmp_path, {**figures, **extra, ("world", "base", "fire_steps"): Estimate(None)})]
    )
    components = only(found, "tab:ablation-chair-detail").values
    assert components[Entry("Full method", "Fire %")] == Estimate(80.0)
    assert components[Entry("Full method", "CHAIR_S")] == Estimate(40.0, 38.0, 42.0)
    assert components[Entry("Shuffled references", "CHAIR_S")] == Estimate(45.0)
    readouts = only(found, "tab:normalized-readout-control").values
    assert readouts[Entry("standardized logit, native", "F1")].value == 41.0
    assert Entry("Base", "Fire %") not in readouts
    assert "tab:chair-full" not in found, "an ablation is no comparison"


def test_an_ablation_on_several_benchmarks_fills_both_halves_of_a_table(tmp_path: Path) -> None:
    figures = {
        ("chair", "full", "chair_s"): 44.8,
        ("amber-generative", "full", "chair"): 4.0,
        ("amber-discriminative", "full", "f1"): 80.0,
    }
    found = read_results([results(tmp_path, figures)])
    assert only(found, "tab:signal-ablation").values == {
        Entry("Full method", "CHAIR_S"): Estimate(44.8),
        Entry("Full method", "AMBER CHAIR"): Estimate(4.0),
        Entry("Full method", "AMBER F1"): Estimate(80.0),
        Entry("Full method", "AMBER Score"): Estimate(88.0),
    }
    assert only(found, "tab:ablation-amber-detail").values[Entry("Full method", "AMBER")] == Estimate(88.0)


def test_a_comparison_fills_its_tables(tmp_path: Path) -> None:
    chair = {
        (benchmark, arm, figure): value
        for arm in ("base", "reweigh")
        for benchmark, figure, value in (
            ("chair", "chair_s", 41.0),
            ("chair", "recall", 70.0),
            ("pope", "f1", 85.0),  # not that of CHAIR
            (None, "latency", 1.1),
        )
    }
    one = results(tmp_path / "chair", {**chair, (None, "reweigh", "latency_cached"): 1.02})
    amber = {
        ("amber-generative", "reweigh", "chair"): 4.0,
        ("amber-generative", "reweigh", "hal"): Estimate(None),
        ("amber-discriminative", "reweigh", "f1"): 80.0,
    }
    found = read_results([results(tmp_path / "amber", amber), one])
    assert only(found, "tab:chair-full").values == {
        Entry(row, metric): Estimate(value)
        for row in ("Base", "ReWEIGH")
        for metric, value in (("CHAIR_S", 41.0), ("Recall", 70.0))
    }
    assert only(found, "tab:chair-amber").values == only(found, "tab:chair-full").values | {
        Entry("Base", "Latency"): Estimate(1.1),
        Entry("ReWEIGH", "Latency"): Estimate(1.02),  # with cached evidence, as in the paper
        Entry("ReWEIGH", "AMBER CHAIR"): Estimate(4.0),
        Entry("ReWEIGH", "AMBER F1"): Estimate(80.0),
        Entry("ReWEIGH", "AMBER Score"): Estimate(88.0),  # (100 - 4 + 80) / 2
    }
    assert only(found, "tab:amber-full").values[Entry("ReWEIGH", "AMBER")] == Estimate(88.0)


def test_several_models_fill_one_table_and_the_paper_s_are_known_by_their_checkpoint(tmp_path: Path) -> None:
    figures = {("chair", "base", "chair_s"): 50.0}
    scorer = {"variant": "wordnet", "similarity": "exact", "vocabulary": "0" * 64}
    about = {"benchmarks": {"chair": {"records": 500, "scorer": scorer}}}
    one = results(tmp_path / "one", figures, **about | {"model": "llava-hf/llava-1.5-7b-hf"})
    two = results(tmp_path / "two", figures, model="world")
    found = read_results([one, two])["tab:chair-full"]
    assert [measured.name for measured in found] == ["LLaVA-1.5-7B", "reweigh world"]
    assert found[0].on == "500 records of CHAIR (similarity: exact, variant: wordnet)"


def test_the_inventory_counts_records_and_the_longest_answers(tmp_path: Path) -> None:
    benchmarks = {"chair": {"records": 20, "new_tokens": 64, "scorer": {}}}
    folder = results(tmp_path, {("chair", "base", "chair_s"): 50.0}, benchmarks=benchmarks)
    assert only(read_results([folder]), "tab:evaluation-inventory").values == {
        Entry("CHAIR", "Records"): Estimate(20),
        Entry("CHAIR", "New tokens"): Estimate(64),
    }


def test_amber_s_answers_are_counted_beside_the_share_of_candidates_without_reference(tmp_path: Path) -> None:
    arms = {"full": 7822.0, "no-abstention": 7420.0}
    figures = {("amber-discriminative", arm, "answered_yes"): value for arm, value in arms.items()}
    found = only(read_results([results(tmp_path, figures)]), "text:abstention").values
    assert found == {
        Entry("Full method", "AMBER yes"): Estimate(7822.0),
        Entry("No abstention", "AMBER yes"): Estimate(7420.0),
    }
    share = row(Estimate(3.5, 3.0, 4.0), setting="stable", quantity="unregistered %", against=None, note="")
    filled = Rules().fill(Frame([share]))
    assert filled["text:abstention"] == {Entry("No abstention", "unregistered %"): Estimate(3.5, 3.0, 4.0)}
    assert filled["tab:registration-rules"] == {}


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
    found = only(read_results([tmp_path]), "tab:mmhal-bench")
    assert found.model == "m"
    assert found.on == "0 records of MMHal-Bench (rated by j)"
    assert {entry.row: value.value for entry, value in found.values.items()} == {
        "Base": 2.0,
        "VCD": 2.5,
        "trial": 9.0,
    }


def test_rated_runs_of_two_models_fill_a_row_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rated(monkeypatch, tmp_path, base={"score": 2.0}, vcd={"score": 2.5, "model": "n"})
    assert [one.model for one in read_results([tmp_path])["tab:mmhal-bench"]] == ["m", "n"]


def test_rated_runs_of_different_judges_fill_no_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rated(monkeypatch, tmp_path, base={"score": 2.0}, vcd={"score": 2.5, "judge": "k"})
    with pytest.raises(InputError, match="vcd"):
        read_results([tmp_path])
