"""The paper's analyses by name.

``STUDIES`` finds them; a new one is a ``Study`` subclass in its own module and one line here (or the entry-point group
``reweigh.studies``).
"""

from __future__ import annotations

from reweigh.paper.study import Study
from reweigh.registry import Registry

__all__ = ["STUDIES"]

STUDIES: Registry[type[Study]] = Registry(
    "study",
    {
        "scale": "reweigh.paper.analyses.scale:Scale",
        "rescaling": "reweigh.paper.analyses.rescaling:Rescaling",
        "tokens": "reweigh.paper.analyses.tokens:Tokens",
        "references": "reweigh.paper.analyses.references:References",
        "detection": "reweigh.paper.analyses.detection:Detection",
        "allocation": "reweigh.paper.analyses.allocation:Allocation",
        "confidence": "reweigh.paper.analyses.confidence:Confidence",
        "sizes": "reweigh.paper.analyses.sizes:Sizes",
        "corpora": "reweigh.paper.analyses.corpora:Corpora",
        "rules": "reweigh.paper.analyses.rules:Rules",
        "specificity": "reweigh.paper.analyses.specificity:Specificity",
        "grid": "reweigh.paper.analyses.grid:Grid",
        "scaling": "reweigh.paper.analyses.scaling:Scaling",
        "cost": "reweigh.paper.analyses.cost:Cost",
        "cases": "reweigh.paper.analyses.cases:Cases",
    },
    group="reweigh.studies",
)
"""Every study, in the order of the paper."""
