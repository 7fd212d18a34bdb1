"""Sentences made from numbers: an estimate in words, and whether a finding of the paper holds here."""

from __future__ import annotations

from reweigh.estimate import Estimate


def show(number: Estimate, *, digits: int = 2, signed: bool = False, unit: str = "") -> str:
    """A value with its interval, as text.

    Example:
        >>> show(Estimate(1.234, 0.5, 2.0), unit=" points")
        '1.23 points [0.50, 2.00]'
    """
    if number.value is None:
        return "undefined"
    form = f"{'+' if signed else ''}.{digits}f"
    ends = f" [{number.low:{form}}, {number.high:{form}}]" if number.bounded else ""
    return f"{number.value:{form}}{unit}{ends}"


def finding(claim: str, number: Estimate, *, above: bool = True, digits: int = 2, unit: str = "") -> str:
    """Whether a difference that the paper finds above (or below) zero is so here, with the interval that decides it.

    It holds if the whole interval lies on that side of zero.
    """
    shown = show(number, digits=digits, signed=True, unit=unit)
    if number.value is None:
        return f"Whether {claim} cannot be told here: the difference is undefined."
    if number.low is None or number.high is None:
        return f"Whether {claim} cannot be told here: {shown} has no interval."
    if (number.low > 0) if above else (number.high < 0):
        return f"As in the paper, {claim}: {shown}."
    opposite = (number.high < 0) if above else (number.low > 0)
    why = "the opposite holds" if opposite else "the interval includes zero"
    return f"The paper finds that {claim}; this is not confirmed here: {shown}, {why}."
