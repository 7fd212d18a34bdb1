"""How two reference tables differ: in their numbers, token by token, and in what they were made with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from reweigh.method.readouts import READOUTS
from reweigh.provenance import record_differences
from reweigh.tables.key import weight_differences

if TYPE_CHECKING:
    from reweigh.tables.table import ReferenceTable

SIDES = ("first", "second")
SHOWN = 60
"""Characters of a recorded value, beyond which it is cut."""


def compare_tables(one: ReferenceTable, other: ReferenceTable) -> dict[str, Any]:
    """Return what differs, by name, with both values; ``equal`` only if the tables are the same in everything."""
    common, mine, theirs = np.intersect1d(one.tokens, other.tokens, return_indices=True)
    references = one.references[mine], other.references[theirs]
    counts = one.counts[mine], other.counts[theirs]
    recorded = list(_recorded(one.about, other.about))
    apart = {
        "layer": one.layer != other.layer,
        "b0": one.b0 != other.b0,
        "tokens": not np.array_equal(one.tokens, other.tokens),
        "counts": not np.array_equal(*counts),
        "references": not np.array_equal(*references),
        "what they were made with": bool(recorded),
    }
    are_shares = all(READOUTS[table.readout].is_share for table in (one, other))
    shares = are_shares and len(common) > 0  # references that may be negative have no ratio
    ratio = np.abs(np.log(references[0] / references[1])) if shares else np.zeros(0)
    return {
        "equal": one.fingerprint == other.fingerprint,
        "differ_in": [name for name, differs in apart.items() if differs],
        "layers": [one.layer, other.layer],
        **({} if one.readout == other.readout else {"readouts": [one.readout, other.readout]}),
        "b0": [one.b0, other.b0],
        "registered": [len(one), len(other)],
        "common": len(common),
        "only_first": len(one) - len(common),
        "only_second": len(other) - len(common),
        "other_counts": int((counts[0] != counts[1]).sum()),
        "other_references": int((references[0] != references[1]).sum()),
        "largest_difference": _largest(common, *references),
        "median_abs_log_ratio": float(np.median(ratio)) if shares else None,
        "max_abs_log_ratio": float(ratio.max()) if shares else None,
        "about": recorded,
    }


def _largest(tokens: Any, first: Any, second: Any) -> dict[str, Any] | None:
    """Return the token whose references are furthest apart, and both; ``None`` where all are the same."""
    gaps = np.abs(first - second)
    if not gaps.any():
        return None
    at = int(gaps.argmax())
    return {"token": int(tokens[at]), "first": float(first[at]), "second": float(second[at])}


def _recorded(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each difference of two records; weights are counted, not listed."""
    for found in record_differences(one, other, ignore={"identity.weights"}):
        yield f"{found.key}: {SIDES[0]} {_cut(found.words[0])}, {SIDES[1]} {_cut(found.words[1])}"
    weights = [dict((made.get("identity") or {}).get("weights") or {}) for made in (one, other)]
    if weights[0] != weights[1]:
        yield from weight_differences(weights[0], weights[1], SIDES) or ["the weights: other float types"]


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."
