"""The paper's analyses by name.

``STUDIES`` finds them; a new one is a ``Study`` subclass in its own module and one line here (or the entry-point group
``reweigh.studies``).
"""

from __future__ import annotations

from reweigh.lab.paper.study import Study
from reweigh.registry import Registry

__all__ = ["STUDIES"]

STUDIES: Registry[type[Study]] = Registry(
    "study",
    {
        "scale": "reweigh.lab.paper.analyses.scale:Scale",
        "rescaling": "reweigh.lab.paper.analyses.rescaling:Rescaling",
        "tokens": "reweigh.lab.paper.analyses.tokens:Tokens",
        "references": "reweigh.lab.paper.analyses.references:References",
        "detection": "reweigh.lab.paper.analyses.detection:Detection",
        "allocation": "reweigh.lab.paper.analyses.allocation:Allocation",
        "confidence": "reweigh.lab.paper.analyses.confidence:Confidence",
        "sizes": "reweigh.lab.paper.analyses.sizes:Sizes",
        "corpora": "reweigh.lab.paper.analyses.corpora:Corpora",
        "rules": "reweigh.lab.paper.analyses.rules:Rules",
        "specificity": "reweigh.lab.paper.analyses.specificity:Specificity",
        "grid": "reweigh.lab.paper.analyses.grid:Grid",
        "scaling": "reweigh.lab.paper.analyses.scaling:Scaling",
        "cost": "reweigh.lab.paper.analyses.cost:Cost",
        "cases": "reweigh.lab.paper.analyses.cases:Cases",
    },
    group="reweigh.studies",
)
"""Every study, in the order of the paper."""
