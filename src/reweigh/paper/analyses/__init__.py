"""The paper's analyses by name, one file each.

``STUDIES`` finds them; a new one is a ``Study`` subclass in its own module and one line here (or the entry-point group
``reweigh.studies``).
"""

from __future__ import annotations

from reweigh.paper.study import Study
from reweigh.registry import Registry

__all__ = ["STUDIES"]

_NAMES = (
    *("scale", "rescaling", "tokens", "references", "detection", "allocation", "confidence"),
    *("sizes", "corpora", "rules", "specificity", "grid", "scaling", "cost", "cases"),
)

STUDIES: Registry[type[Study]] = Registry(
    "study",
    {name: f"reweigh.paper.analyses.{name}:{name.capitalize()}" for name in _NAMES},
    group="reweigh.studies",
)
"""Every study, in the order of the paper."""
