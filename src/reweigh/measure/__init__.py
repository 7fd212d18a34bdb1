"""Measure: read the image's positions through the model's own norm and head, and rank the vocabulary at each.

The package is the public verb as well: ``reweigh.measure(model, inputs, layers=[...])`` is
``reweigh.measure.evidence.measure``, because a package and a function cannot share a name in any other way.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reweigh.measure.evidence import Evidence


class _Verb(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> list[Evidence | None]:
        """Measure visual evidence; see ``reweigh.measure.evidence.measure``."""
        from reweigh.measure.evidence import measure

        return measure(*args, **kwargs)


sys.modules[__name__].__class__ = _Verb
