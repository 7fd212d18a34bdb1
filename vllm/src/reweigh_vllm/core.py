"""Everything that this distribution takes from ``reweigh``, in one place; ``calibration`` alone imports a little more."""

from reweigh.errors import (
    CalibrationError,
    InputError,
    MismatchError,
    NumericsError,
    ReweighError,
    UnsupportedError,
    require_known,
)
from reweigh.families.catalogue import family_of, native_rows
from reweigh.families.identity import identify_stored
from reweigh.families.points import nearest_point, point_in_use
from reweigh.families.positions import layout
from reweigh.memory import Memory, prompt_keys
from reweigh.method.edit import EditedStep, StepEditor, candidates, check_beta, spread
from reweigh.method.lens import CHUNK, Lens
from reweigh.method.references import strength
from reweigh.method.sums import ReadoutSums as RankSum
from reweigh.tables.key import ModelKey
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import ReferenceTable

__all__ = [
    "CHUNK",
    "CalibrationError",
    "EditedStep",
    "ModelKey",
    "InputError",
    "Lens",
    "Memory",
    "MismatchError",
    "NumericsError",
    "OperatingPoint",
    "RankSum",
    "ReferenceTable",
    "ReweighError",
    "StepEditor",
    "UnsupportedError",
    "candidates",
    "check_beta",
    "family_of",
    "identify_stored",
    "layout",
    "native_rows",
    "nearest_point",
    "point_in_use",
    "prompt_keys",
    "require_known",
    "spread",
    "strength",
]
