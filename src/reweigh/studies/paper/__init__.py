"""The paper's analyses by name: each reads what one pass over the images kept, and writes a table, a figure and sentences.

``STUDIES`` finds them; a new one is a ``Study`` subclass in a module of its own and one line here (or the entry-point group
``reweigh.studies``).
"""

from __future__ import annotations

from reweigh.registry import Registry
from reweigh.studies.paper.study import Study

__all__ = ["STUDIES", "Study"]

STUDIES: Registry[type[Study]] = Registry(
    "study",
    {
        "scale": "reweigh.studies.paper.scale:Scale",
        "rescaling": "reweigh.studies.paper.rescaling:Rescaling",
        "tokens": "reweigh.studies.paper.tokens:Tokens",
        "references": "reweigh.studies.paper.references:References",
        "detection": "reweigh.studies.paper.detection:Detection",
        "allocation": "reweigh.studies.paper.allocation:Allocation",
        "confidence": "reweigh.studies.paper.confidence:Confidence",
        "sizes": "reweigh.studies.paper.sizes:Sizes",
        "corpora": "reweigh.studies.paper.corpora:Corpora",
        "rules": "reweigh.studies.paper.rules:Rules",
        "specificity": "reweigh.studies.paper.specificity:Specificity",
        "grid": "reweigh.studies.paper.grid:Grid",
        "scaling": "reweigh.studies.paper.scaling:Scaling",
        "cost": "reweigh.studies.paper.cost:Cost",
        "cases": "reweigh.studies.paper.cases:Cases",
    },
    group="reweigh.studies",
)
"""Every study, in the order of the paper."""
