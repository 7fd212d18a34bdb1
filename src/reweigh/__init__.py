"""ReWEIGH: measure what an image supports, register each token's typical evidence, intervene below it.

    import reweigh

    rw = reweigh.attach(model, processor, table="my-table")
    with rw:
        model.generate(**inputs)

Names are imported when first used, so that ``import reweigh`` stays light and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Evidence": "reweigh.measure.evidence",
    "ReferenceTable": "reweigh.register.table",
    "ReweighError": "reweigh.errors",
    "Trace": "reweigh.intervene.trace",
    "attach": "reweigh.intervene.attach",
    "calibrate": "reweigh.register.calibrate",
    "check": "reweigh.intervene.check",
    "decoder": "reweigh.decoders",
    "measure": "reweigh.measure.evidence",
}

if TYPE_CHECKING:
    from reweigh.decoders import decoder as decoder
    from reweigh.errors import ReweighError as ReweighError
    from reweigh.intervene.attach import attach as attach
    from reweigh.intervene.check import check as check
    from reweigh.intervene.trace import Trace as Trace
    from reweigh.measure.evidence import Evidence as Evidence
    from reweigh.measure.evidence import measure as measure
    from reweigh.register.calibrate import calibrate as calibrate
    from reweigh.register.table import ReferenceTable as ReferenceTable

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'reweigh' has no attribute {name!r}")
    if name == "measure":  # a package and the verb at once
        return importlib.import_module("reweigh.measure")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
