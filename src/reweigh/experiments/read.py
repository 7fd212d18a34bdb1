"""The frame of anything finished: a scored run, a comparison, a tuning, an ablation or a study."""

from __future__ import annotations

from pathlib import Path

from reweigh.errors import InputError
from reweigh.experiments.experiment import FRAME, read_frame
from reweigh.results.frame import AGAINST, Frame, Row
from reweigh.runs.record import RESULTS
from reweigh.runs.results import read_scored

MADE_BEFORE = ("comparison.json", "ablation.json", "operating_point.json")
"""Files of experiments that were finished before frames were written."""


def read(folder: str | Path) -> Frame:
    """The results in a folder as one tidy frame; a file that was altered is refused.

    Args:
        folder: A scored run (``reweigh eval score``), or the folder of ``reweigh compare``, ``tune``, ``ablate`` or
            ``study``.

    Example:
        >>> frame = read("comparison")  # doctest: +SKIP
        >>> frame.one(arm="reweigh", figure="chair_i", against="base").value  # doctest: +SKIP
        -7.7
    """
    folder = Path(folder)
    if (folder / FRAME).is_file():
        return read_frame(folder)
    if (folder / RESULTS).is_file():
        run = read_scored(folder)
        arm = str(run.results["config"].get("decoding", {}).get("decoder") or folder.resolve().name)
        keys = {"benchmark": run.benchmark, "arm": arm}
        rows = (Row({**keys, "figure": name, AGAINST: None}, one) for name, one in run.metrics.items())
        return Frame(rows, run.results["config"])
    for name in MADE_BEFORE:
        if (folder / name).is_file():
            raise InputError(
                f"{folder} was finished by an earlier version, which wrote no {FRAME}",
                hint="run the same command again: its answers are kept",
            )
    raise InputError(
        f"{folder} holds no finished results", hint="give the folder of a scored run or an experiment"
    )
