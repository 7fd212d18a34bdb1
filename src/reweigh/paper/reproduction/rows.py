"""From the rows of a study to the entries of the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reweigh.estimate import Estimate
from reweigh.paper.reproduction.published import Entry

Found = dict[Entry, float | Estimate]
Rows = Sequence[Mapping[str, Any]]
FIGURES = {"chair_s": "CHAIR_S", "chair_i": "CHAIR_I", "recall": "Recall", "f1": "F1"}


def number(row: Mapping[str, Any], *, times: float = 1.0) -> float | Estimate | None:
    """A row's value with its interval."""
    value, low, high = (row.get(name) for name in ("value", "low", "high"))
    if value is None:
        return None
    return (
        times * value if low is None or high is None else Estimate(times * value, times * low, times * high)
    )


def put(found: Found, row: str, metric: str, value: float | Estimate | None) -> None:
    """Keep a number that there is."""
    if value is not None:
        found[Entry(row, metric)] = value


def scale(rows: Rows) -> dict[str, Found]:
    """Spread over positions, its survival, and the depth of a threshold."""
    nuisance, depth, threshold = Found(), Found(), Found()
    for row in rows:
        rank = f"k = {row['at']}"
        if row["quantity"] == "ratio" and row["at"] == "10":
            put(nuisance, rank, row["logits"], number(row))
        elif row["quantity"] == "spread":
            put(depth, rank, row["logits"], number(row))
        elif row["quantity"] == "survival":
            put(depth, rank, "survival %", number(row, times=100.0))
        elif row["quantity"] == "depth ratio" and row["logits"] == "original":
            put(threshold, row["at"], "p90/p10", number(row))
    return {"fig:scale-nuisance": nuisance, "tab:depth-dispersion": depth, "tab:scale-dispersion": threshold}


def rescaling(rows: Rows) -> dict[str, Found]:
    """What permuted scales do to the edits, and the gap that equal scales close."""
    found = Found()
    names = {
        "Spearman": ("Spearman", 1.0),
        "Jaccard": ("Jaccard", 1.0),
        "strongest": ("strongest changed %", 100.0),
        "winner": ("winner changed %", 100.0),
        "gap closed": ("gap closed %", 100.0),
    }
    for row in rows:
        if row["quantity"] == "mean |change of s|":
            put(found, row["arm"], "mean |change of s|", number(row))
        for start, (metric, times) in names.items():
            shown = row["arm"] != "rank" and "both" not in row["over"]
            if shown and start.lower() in row["quantity"].lower():
                put(found, row["arm"], metric, number(row, times=times))
    return {"tab:rescale-invariance": found}


def tokens(rows: Rows) -> dict[str, Found]:
    """Shares between and within tokens, and intraclass correlations."""
    found = Found()
    names = {"between tokens": "between %", "within a token": "within %"}
    for row in rows:
        least = row["least_images"]
        balanced = f"min. {least} image{'s' if least != 1 else ''}"
        name = balanced if row["weighting"] == "image-balanced" else "occurrence weighted"
        if row["quantity"] in names:
            put(found, name, names[row["quantity"]], number(row, times=100.0))
        else:
            put(found, "ICC", row["quantity"].removeprefix("ICC "), number(row))
    return {"tab:variance-decomposition": found, "fig:token-decomposition": found}


def references(rows: Rows) -> dict[str, Found]:
    """Errors of references on other images."""
    found = Found()
    for row in rows:
        name = "token median" if row["aggregate"].startswith("median") else "weighted mean"
        if row["quantity"] == "reduction":
            put(found, name, "reduction %", number(row, times=100.0))
        elif row["quantity"] in ("global", "shuffled", "token-specific"):
            put(found, name, row["quantity"], number(row))
    return {"tab:token-reference-correspondence": found, "fig:token-correspondence": found}


def detection(rows: Rows) -> dict[str, Found]:
    """AUROC and the raw control of the text, and the end-to-end comparison."""
    text, end = Found(), Found()
    names = {**FIGURES, "removed": "Removed", "introduced": "Introduced", "net": "Net"}
    for row in rows:
        if row["part"] == "detection":
            put(text, row["arm"], "AUROC", number(row))
        elif row["part"] == "end to end":
            put(end, row["arm"], names[row["quantity"]], number(row))
        elif (row["quantity"], row["at"], row["arm"]) == ("selectivity", "window", "rank minus probability"):
            put(text, "control", "raw rank minus probability", number(row))
    return {"text:detection": text, "tab:detection-not-mitigation": end}


def allocation(rows: Rows) -> dict[str, Found]:
    """Effects, effects by role and shares."""
    found = Found()
    for row in rows:
        if row["at"] != "window":
            continue
        if row["group"] == "effect":
            put(found, f"{row['quantity']} donor", "effect", number(row))
        elif row["group"] == "role":
            put(found, row["quantity"], "effect", number(row))
        else:
            put(found, f"{row['quantity']} allocation only", "structural share %", number(row))
    return {"tab:allocation-mechanism": found}


def confidence(rows: Rows) -> dict[str, Found]:
    """The confident quarter of onsets."""
    found = Found()
    names = {"hallucinated, %": "hallucinated %", "difference of medians": "difference"}
    for row in rows:
        put(found, "top quartile", names.get(row["quantity"], str(row["quantity"])), number(row))
    return {"tab:confidence-blindness": found}


def sweep(*labels: str) -> Callable[[Rows], dict[str, Found]]:
    """Settings by the figures of CHAIR and their own counts."""

    def read(rows: Rows) -> dict[str, Found]:
        found = Found()
        for row in rows:
            metric = FIGURES.get(row["quantity"], str(row["quantity"]))
            if " minus " not in metric:
                put(found, "Base" if row["setting"] == "base" else row["setting"], metric, number(row))
        return {label: found for label in labels}

    return read


def grid(rows: Rows) -> dict[str, Found]:
    """Every point of the grid, named as the paper names its own; layers differ between models."""
    found = Found()
    for row in rows:
        name = "Base" if row["layer"] is None else f"layer {row['layer']}, beta {row['beta']:g}"
        for quantity in ("chair_s", "chair_i", "f1"):
            put(found, name, FIGURES[quantity], row[quantity])
    return {"tab:layer-beta-grid": found, "fig:ablation-layer-beta": found}


def scaling(rows: Rows) -> dict[str, Found]:
    """Base and ReWEIGH of the first checkpoint; the study's own page has the others."""
    found = Found()
    for row in rows:
        if row["model"] == rows[0]["model"] and row["method"] in ("base", "ReWEIGH"):
            name = {"base": "Base"}.get(row["method"], str(row["method"]))
            put(found, name, FIGURES[row["quantity"]], number(row))
    return {label: found for label in ("tab:model-scaling", "tab:chair-full", "tab:chair-amber")}


def cost(rows: Rows) -> dict[str, Found]:
    """Latency and memory."""
    found = Found()
    names = {
        "latency, cached evidence": "latency, cached evidence",
        "latency, online evidence": "latency, online evidence",
        "evidence of one image and layer": "cache per image (KiB)",
    }
    for row in rows:
        if row["quantity"] in names:
            put(found, names[row["quantity"]], "ReWEIGH", number(row))
    return {"tab:efficiency-accounting": found}


def sizes(rows: Rows) -> dict[str, Found]:
    """The sweep, and the table in use beside the paper's operating points."""
    found = sweep("tab:calibration-size", "fig:calibration-size")(rows)
    point = Found()
    for row in rows:
        if row["note"] == "the table in use" and row["quantity"] in ("registered", "b0"):
            put(point, "operating point", row["quantity"], number(row))
    return {**found, "tab:operating-points": point}


def cases(rows: Rows) -> dict[str, Found]:
    """Drawn, not compared."""
    labels = ("mechanism-case", "rank-probability-case", "chair-examples-1", "failure-modes")
    return {**{f"fig:{label}": Found() for label in labels}, "tab:mechanism-case": Found()}


STUDIES: dict[str, Callable[[Rows], dict[str, Found]]] = {
    "scale": scale,
    "rescaling": rescaling,
    "tokens": tokens,
    "references": references,
    "detection": detection,
    "allocation": allocation,
    "confidence": confidence,
    "sizes": sizes,
    "corpora": sweep("tab:calibration-corpus"),
    "rules": sweep("tab:registration-rules"),
    "specificity": sweep("tab:image-specificity"),
    "grid": grid,
    "scaling": scaling,
    "cost": cost,
    "cases": cases,
}
"""How each study's table fills the paper's."""
