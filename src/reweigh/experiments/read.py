"""The frame of anything finished: a scored run, a comparison, a tuning, an ablation or a study."""

from __future__ import annotations

from pathlib import Path

from reweigh.errors import InputError
from reweigh.experiments.experiment import FRAME, read_frame
from reweigh.files.artifacts import read_json, sha256_file
from reweigh.files.seals import altered, read_sealed
from reweigh.results.frame import AGAINST, Frame, Row
from reweigh.runs.record import RESULTS
from reweigh.runs.results import read_scored

MADE_BEFORE = ("comparison.json", "ablation.json", "operating_point.json")
"""Files of experiments that were finished before frames were written."""


STUDY, STUDY_TABLE = "study.json", "table.json"
"""The sealed page of a finished study, and the file with its frame."""


def read(folder: str | Path) -> Frame:
    """The results in a folder as one tidy frame; a file that was altered is refused.

    Args:
        folder: A scored run (``reweigh eval score``), the folder of ``reweigh compare``, ``tune`` or ``ablate``, or
            that of one study below the folder of ``reweigh study``.

    Example:
        >>> from tempfile import mkdtemp
        >>> from reweigh.estimate import Estimate
        >>> from reweigh.experiments.experiment import write_frame
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
        keys = {"benchmark": run.benchmark, "arm": arm}
        rows = (Row({**keys, "figure": name, AGAINST: None}, one) for name, one in run.metrics.items())
        return Frame(rows, run.results["config"])
    if (folder / STUDY).is_file():
        return _read_study(folder)
    if finished := sorted(path.parent.name for path in folder.glob(f"*/{STUDY}")):
        raise InputError(
            f"{folder} has several studies, each with other keys",
            hint=f"give the folder of one: {', '.join(str(folder / name) for name in finished[:3])} ...",
        )
    for name in MADE_BEFORE:
        if (folder / name).is_file():
            raise InputError(
                f"{folder} was finished by an earlier version, which wrote no {FRAME}",
                hint="run the same command again: its answers are kept",
            )
    raise InputError(
        f"{folder} has no finished results", hint="give the folder of a scored run or an experiment"
    )


def _read_study(folder: Path) -> Frame:
    page = read_sealed(folder / STUDY)
    path = folder / STUDY_TABLE
    if not path.is_file() or sha256_file(path) != page.get("files", {}).get(STUDY_TABLE):
        raise altered(path)
    return Frame.from_json(read_json(path))
