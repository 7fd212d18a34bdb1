"""The paper's analyses by name: each reads what one pass over the images kept, and writes a table, a figure and sentences.

``STUDIES`` finds them; a new one is a ``Study`` subclass in a module of its own and one line here (or the entry-point group
``reweigh.studies``).
"""

from __future__ import annotations

from reweigh.paper.studies.study import Study
from reweigh.registry import Registry

__all__ = ["STUDIES", "Study"]

STUDIES: Registry[type[Study]] = Registry(
    "study",
    {
        "scale": "reweigh.paper.studies.scale:Scale",
        "rescaling": "reweigh.paper.studies.rescaling:Rescaling",
        "tokens": "reweigh.paper.studies.tokens:Tokens",
        "references": "reweigh.paper.studies.references:References",
        "detection": "reweigh.paper.studies.detection:Detection",
        "allocation": "reweigh.paper.studies.allocation:Allocation",
        "confidence": "reweigh.paper.studies.confidence:Confidence",
        "sizes": "reweigh.paper.studies.sizes:Sizes",
        "corpora": "reweigh.paper.studies.corpora:Corpora",
        "rules": "reweigh.paper.studies.rules:Rules",
        "specificity": "reweigh.paper.studies.specificity:Specificity",
        "grid": "reweigh.paper.studies.grid:Grid",
        "scaling": "reweigh.paper.studies.scaling:Scaling",
        "cost": "reweigh.paper.studies.cost:Cost",
        "cases": "reweigh.paper.studies.cases:Cases",
    },
    group="reweigh.studies",
)
"""Every study, in the order of the paper."""
