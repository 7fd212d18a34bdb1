"""Which commands measure each table and figure of the paper; a test parses every one with the real command line."""

from __future__ import annotations

from reweigh.paper.analyses import STUDIES

READOUTS = "zscore,zscore-matched,mean-probability,standardized-probability"
AMBER = "-b amber-generative -b amber-discriminative"
FIRST = {
    "cost": "reweigh speed MODEL --table TABLE -o study/speed",
    "grid": "reweigh tune MODEL -b chair --table TABLE -o study/tuning",
}
"""What a study reads and does not run itself."""
OTHERS = {
    "tab:chair-amber": (f"reweigh compare MODEL --table TABLE -b chair {AMBER}",),
    "tab:chair-full": ("reweigh compare MODEL --table TABLE -b chair",),
    "tab:amber-full": (f"reweigh compare MODEL --table TABLE {AMBER}",),
    "tab:mmhal-bench": (
        "reweigh eval run MODEL --table TABLE -b mmhal -o runs/mmhal",
        "reweigh eval score runs/mmhal",
        "reweigh eval run MODEL --table TABLE -b mmvet -o runs/mmvet",
        "reweigh eval score runs/mmvet",
    ),
    "tab:signal-ablation": ("reweigh ablate MODEL -b chair --table TABLE",),
    "tab:ablation-chair-detail": ("reweigh ablate MODEL -b chair --table TABLE",),
    "tab:normalized-readout-control": (
        f"reweigh ablate MODEL -b chair --table TABLE --calibration IMAGES --arms {READOUTS}",
    ),
    "fig:amber-examples": (
        "reweigh eval run MODEL -b amber-generative --decoder base -o runs/amber-base",
        "reweigh eval score runs/amber-base",
        "reweigh eval run MODEL --table TABLE -b amber-generative -o runs/amber",
        "reweigh eval score runs/amber",
        "reweigh eval diff runs/amber-base runs/amber -o amber.html",
    ),
}
NOT_MEASURED = {"tab:ablation-amber-detail": "no command runs the ablation's arms on AMBER"}
"""Tables with numbers that no command measures, and why."""


def commands(label: str) -> tuple[str, ...]:
    """The commands that measure a table or figure, in their order; none where there is nothing to measure."""
    if label in OTHERS:
        return OTHERS[label]
    for name in STUDIES:
        if label in STUDIES[name].labels:
            study = f"reweigh study {name} MODEL -b chair --table TABLE --calibration IMAGES -o study"
            return (FIRST[name], study) if name in FIRST else (study,)
    return ()
