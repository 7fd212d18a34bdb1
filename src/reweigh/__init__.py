"""ReWEIGH: measure what an image supports, register each token's typical evidence, intervene below it.

    import reweigh

    model, processor = reweigh.load("llava-hf/llava-1.5-7b-hf")
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
    "Evidence": "reweigh.method.evidence",
    "ReferenceTable": "reweigh.tables.table",
    "ReweighError": "reweigh.errors",
    "Trace": "reweigh.method.trace",
    "attach": "reweigh.attached",
    "calibrate": "reweigh.calibration.calibrate",
    "check": "reweigh.measuring",
    "decoder": "reweigh.rivals",
    "load": "reweigh.families.load",
    "measure": "reweigh.measuring",
    "read": "reweigh.lab.read",
}

if TYPE_CHECKING:
    from reweigh.attached import attach as attach
    from reweigh.calibration.calibrate import calibrate as calibrate
    from reweigh.errors import ReweighError as ReweighError
    from reweigh.families.load import load as load
    from reweigh.lab.read import read as read
    from reweigh.measuring import check as check
    from reweigh.measuring import measure as measure
    from reweigh.method.evidence import Evidence as Evidence
    from reweigh.method.trace import Trace as Trace
    from reweigh.rivals import decoder as decoder
    from reweigh.tables.table import ReferenceTable as ReferenceTable

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'reweigh' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
