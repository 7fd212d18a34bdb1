"""Sentences made from numbers: an estimate in words, and whether a finding of the paper shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def show(row: Mapping[str, Any], *, digits: int = 2, signed: bool = False, unit: str = "") -> str:
    """A row's value with its interval, as text.

    Example:
        >>> show({"value": 1.234, "low": 0.5, "high": 2.0}, unit=" points")
        '1.23 points [0.50, 2.00]'
    """
    if row["value"] is None:
        return "not defined"
    sign = "+" if signed else ""
    value, *ends = (
        "" if row[name] is None else f"{row[name]:{sign}.{digits}f}" for name in ("value", "low", "high")
    )
    interval = f" [{ends[0]}, {ends[1]}]" if all(ends) else ""
    return f"{value}{unit}{interval}"


def finding(
    claim: str, row: Mapping[str, Any], *, above: bool = True, digits: int = 2, unit: str = ""
) -> str:
    """Whether a difference that the paper finds above (or below) zero is so here, and the interval that says so.

    It shows if the whole interval lies on that side of zero.
    """
    shown = show(row, digits=digits, signed=True, unit=unit)
    if row["value"] is None:
        return f"Whether {claim} cannot be told here: the difference is not defined."
    low, high = row["low"], row["high"]
    if low is None or high is None:
        return f"Whether {claim} cannot be told here: {shown} has no interval."
    if (low > 0) if above else (high < 0):
        return f"The paper's finding that {claim} shows here: {shown}."
    opposite = (high < 0) if above else (low > 0)
    why = "the opposite holds" if opposite else "the interval includes zero"
    return f"The paper's finding that {claim} does not show here: {shown}, {why}."
