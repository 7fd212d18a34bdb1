"""Read the results of any command as one tidy frame."""

from __future__ import annotations

from pathlib import Path

from reweigh.errors import InputError
from reweigh.lab.frame import AGAINST, Frame, Row
from reweigh.lab.runs.record import RESULTS
from reweigh.lab.runs.results import read_scored
from reweigh.lab.views.report import FRAME, read_frame

STUDY = "study.json"
"""The sealed page of a finished analysis."""


def read(folder: str | Path) -> Frame:
    """Read the results in a folder as one tidy frame; a file that was altered is refused.

    Args:
        folder: A scored run (``reweigh eval score``), the folder of ``reweigh compare``, ``tune`` or
            ``ablate``, or that of one study below the folder of ``reweigh study``.

    Examples:
        >>> from tempfile import mkdtemp
        >>> from reweigh.lab.estimate import Estimate
        >>> from reweigh.lab.views.report import write_frame
        >>> rows = [Row({"arm": "base", "figure": "chair_i"}, Estimate(17.1, 16.0, 18.2))]
        >>> frame = read(write_frame(Frame(rows), Path(mkdtemp())).parent)
        >>> frame.one(arm="base", figure="chair_i").value
        17.1
    """
    folder = Path(folder)
    if (folder / FRAME).is_file():
        return read_frame(folder)
    if (folder / RESULTS).is_file():
        run = read_scored(folder)
        arm = str(run.results["config"].get("decoding", {}).get("decoder") or folder.resolve().name)
        keys = {"benchmark": run.summary.benchmark, "arm": arm}
        rows = (
            Row({**keys, "figure": name, AGAINST: None}, one) for name, one in run.summary.metrics.items()
        )
        return Frame(rows, run.results["config"])
    if finished := sorted(path.parent.name for path in folder.glob(f"*/{STUDY}")):
        raise InputError(
            f"{folder} has several studies, each with different keys",
            hint=f"give the folder of one: {', '.join(str(folder / name) for name in finished[:3])} ...",
        )
    raise InputError(
        f"{folder} has no finished results",
        hint="give the folder of a scored run or an experiment; run one of an earlier version again, its "
        "answers are kept",
    )
