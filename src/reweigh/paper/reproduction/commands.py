"""Which command of the package measures each table and figure of the paper."""

from __future__ import annotations

RUN = {
    **{
        label: "reweigh study scale"
        for label in ("fig:scale-nuisance", "tab:depth-dispersion", "tab:scale-dispersion")
    },
    "tab:rescale-invariance": "reweigh study rescaling",
    **{label: "reweigh study tokens" for label in ("fig:token-decomposition", "tab:variance-decomposition")},
    **{
        label: "reweigh study references"
        for label in ("fig:token-correspondence", "tab:token-reference-correspondence")
    },
    "tab:chair-amber": "reweigh compare -b chair -b amber-generative -b amber-discriminative",
    "tab:chair-full": "reweigh compare -b chair",
    "tab:amber-full": "reweigh compare -b amber-generative -b amber-discriminative",
    "tab:mmhal-bench": "reweigh eval run -b mmhal and -b mmvet, then reweigh eval score",
    "tab:signal-ablation": "reweigh ablate",
    "tab:ablation-chair-detail": "reweigh ablate",
    "tab:ablation-amber-detail": "reweigh ablate -b amber-generative",
    "tab:normalized-readout-control": "reweigh ablate with the arms of readouts",
    "fig:calibration-size": "reweigh study sizes",
    "tab:calibration-size": "reweigh study sizes",
    "tab:operating-points": "reweigh study sizes",
    "text:detection": "reweigh study detection",
    "tab:detection-not-mitigation": "reweigh study detection",
    "tab:allocation-mechanism": "reweigh study allocation",
    "tab:confidence-blindness": "reweigh study confidence",
    "tab:efficiency-accounting": "reweigh speed, then reweigh study cost",
    "tab:image-specificity": "reweigh study specificity",
    "tab:layer-beta-grid": "reweigh tune, then reweigh study grid",
    "fig:ablation-layer-beta": "reweigh tune, then reweigh study grid",
    "tab:registration-rules": "reweigh study rules",
    "tab:calibration-corpus": "reweigh study corpora",
    "tab:model-scaling": "reweigh study scaling",
    **{
        label: "reweigh study cases"
        for label in (
            "tab:mechanism-case",
            "fig:mechanism-case",
            "fig:rank-probability-case",
            "fig:chair-examples-1",
            "fig:failure-modes",
        )
    },
    "fig:amber-examples": "reweigh eval run -b amber-generative, then reweigh eval report",
}
"""The command behind each table and figure; those without one have nothing to measure."""
