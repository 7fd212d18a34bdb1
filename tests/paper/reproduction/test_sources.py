"""Rows of studies find their places in the paper's tables, by the names that the studies themselves use."""

from __future__ import annotations

from typing import Any

from reweigh.estimate import Estimate
from reweigh.paper.analyses.rescaling import BOTH, EITHER, JACCARD, SPEARMAN, STEPS, STRONGEST, WINNER
from reweigh.paper.reproduction.published import Entry, published
from reweigh.paper.reproduction.rows import STUDIES
from reweigh.paper.studies import STUDIES as EVERY
from reweigh.paper.studies.references import GLOBAL, MASS, MEDIAN, REDUCTION, SHUFFLED, SPECIFIC
from reweigh.paper.studies.rescaling import CHANGE, CLOSED, OCCURRENCES
from reweigh.paper.studies.tokens import ANOVA, BALANCED, BETWEEN, SIMPLE, WEIGHTED, WITHIN

VALUE = {"value": 0.5, "low": 0.25, "high": 0.75}
SHARE = Estimate(50.0, 25.0, 75.0)


def test_every_study_has_its_places_and_every_place_is_the_paper_s() -> None:
    assert set(STUDIES) == set(EVERY)


def entries(label: str, rows: list[dict[str, Any]], study: str) -> dict[Entry, Any]:
    found = STUDIES[study](rows)[label]
    known = {entry for values in published()[label].values.values() for entry in values}
    return {entry: value for entry, value in found.items() if entry in known}


def test_rescaling() -> None:
    named = [
        (SPEARMAN, STEPS),
        (JACCARD, EITHER),
        (JACCARD, BOTH),
        (STRONGEST, EITHER),
        (WINNER, STEPS),
        (CHANGE, OCCURRENCES),
    ]
    rows = [{"arm": "probability", "quantity": name, "over": over, **VALUE} for name, over in named]
    rows[2]["value"] = 0.9  # both sets edit: not what the paper reports
    rows += [
        {"arm": "rank", "quantity": CHANGE, "over": OCCURRENCES, "value": 0.0, "low": 0.0, "high": 0.0},
        {"arm": "equalization", "quantity": CLOSED, "over": "candidate occurrences", **VALUE},
    ]
    found = entries("tab:rescale-invariance", rows, "rescaling")
    assert found[Entry("probability", "Spearman")] == Estimate(0.5, 0.25, 0.75)
    assert found[Entry("probability", "Jaccard")] == Estimate(0.5, 0.25, 0.75)
    assert found[Entry("probability", "strongest changed %")] == SHARE
    assert found[Entry("probability", "winner changed %")] == SHARE
    assert found[Entry("equalization", "gap closed %")] == SHARE
    assert found[Entry("rank", "mean |change of s|")].value == 0.0


def test_tokens() -> None:
    rows = [
        {"quantity": name, "weighting": weighting, "least_images": least, **VALUE}
        for name in (BETWEEN, WITHIN)
        for weighting, least in ((BALANCED, 1), (BALANCED, 5), (WEIGHTED, 1))
    ]
    rows += [
        {"quantity": name, "weighting": BALANCED, "least_images": 5, **VALUE} for name in (SIMPLE, ANOVA)
    ]
    found = entries("tab:variance-decomposition", rows, "tokens")
    assert found[Entry("min. 1 image", "between %")] == SHARE
    assert found[Entry("min. 5 images", "within %")] == SHARE
    assert found[Entry("occurrence weighted", "between %")] == SHARE
    assert found[Entry("ICC", "simple")] == found[Entry("ICC", "ANOVA")] == Estimate(0.5, 0.25, 0.75)


def test_references() -> None:
    rows = [
        {"quantity": name, "aggregate": aggregate, **VALUE}
        for name in (SPECIFIC, GLOBAL, SHUFFLED, REDUCTION)
        for aggregate in (MEDIAN, MASS)
    ]
    found = entries("tab:token-reference-correspondence", rows, "references")
    assert len(found) == len(rows)
    assert found[Entry("weighted mean", "reduction %")] == SHARE
