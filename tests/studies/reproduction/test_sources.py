"""Rows of studies find their places in the paper's tables, by the names that the studies themselves use."""

from __future__ import annotations

from typing import Any

from reweigh.report.tables import Estimate
from reweigh.studies.analyses.rescaling import BOTH, EITHER, JACCARD, SPEARMAN, STEPS, STRONGEST, WINNER
from reweigh.studies.paper import STUDIES as EVERY
from reweigh.studies.paper.references import GLOBAL, MASS, MEDIAN, REDUCTION, SHUFFLED, SPECIFIC
from reweigh.studies.paper.rescaling import CHANGE, CLOSED, OCCURRENCES
from reweigh.studies.paper.tokens import ANOVA, BALANCED, BETWEEN, SIMPLE, WEIGHTED, WITHIN
from reweigh.studies.reproduction.published import Place, published
from reweigh.studies.reproduction.rows import STUDIES

VALUE = {"value": 0.5, "low": 0.25, "high": 0.75}
SHARE = Estimate(50.0, 25.0, 75.0)


def test_every_study_has_its_places_and_every_place_is_the_paper_s() -> None:
    assert set(STUDIES) == set(EVERY)


def places(label: str, rows: list[dict[str, Any]], study: str) -> dict[Place, Any]:
    found = STUDIES[study](rows)[label]
    known = {place for values in published()[label].values.values() for place in values}
    return {place: value for place, value in found.items() if place in known}


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
    found = places("tab:rescale-invariance", rows, "rescaling")
    assert found[Place("probability", "Spearman")] == Estimate(0.5, 0.25, 0.75)
    assert found[Place("probability", "Jaccard")] == Estimate(0.5, 0.25, 0.75)
    assert found[Place("probability", "strongest changed %")] == SHARE
    assert found[Place("probability", "winner changed %")] == SHARE
    assert found[Place("equalization", "gap closed %")] == SHARE
    assert found[Place("rank", "mean |change of s|")].value == 0.0


def test_tokens() -> None:
    rows = [
        {"quantity": name, "weighting": weighting, "least_images": least, **VALUE}
        for name in (BETWEEN, WITHIN)
        for weighting, least in ((BALANCED, 1), (BALANCED, 5), (WEIGHTED, 1))
    ]
    rows += [
        {"quantity": name, "weighting": BALANCED, "least_images": 5, **VALUE} for name in (SIMPLE, ANOVA)
    ]
    found = places("tab:variance-decomposition", rows, "tokens")
    assert found[Place("min. 1 image", "between %")] == SHARE
    assert found[Place("min. 5 images", "within %")] == SHARE
    assert found[Place("occurrence weighted", "between %")] == SHARE
    assert found[Place("ICC", "simple")] == found[Place("ICC", "ANOVA")] == Estimate(0.5, 0.25, 0.75)


def test_references() -> None:
    rows = [
        {"quantity": name, "aggregate": aggregate, **VALUE}
        for name in (SPECIFIC, GLOBAL, SHUFFLED, REDUCTION)
        for aggregate in (MEDIAN, MASS)
    ]
    found = places("tab:token-reference-correspondence", rows, "references")
    assert len(found) == len(rows)
    assert found[Place("weighted mean", "reduction %")] == SHARE
