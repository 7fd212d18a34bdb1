"""How much code a reader has to follow for one calibration of three pictures into a folder.

Counts the distinct functions of ``src/reweigh`` that ``calibrate(out=...)`` calls, here and in threads it starts, and the
files they are in. Generator expressions, comprehensions and lambdas belong to the function that holds them.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import reweigh
from reweigh import world
from reweigh.families.load import load
from reweigh.world.scenes import scene

SOURCE = str(Path(reweigh.__file__).parent)
MOST = (270, 48)
"""The most functions and files."""


def test_a_calibration_stays_short(tmp_path, capsys):
    model, processor = load(world.path())
    pictures = [(f"{number}.png", scene("calibration", number).image()) for number in range(3)]
    options = {"max_new_tokens": 8, "show": False}
    reweigh.calibrate(model, processor, pictures, **options)
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
            found.add((code.co_filename, code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        reweigh.calibrate(model, processor, pictures, out=tmp_path, **options)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    counted = len(found), len({file for file, _ in found})
    with capsys.disabled():
        print(f"\ncalibrate(out=...), 3 pictures: {counted[0]} functions in {counted[1]} files")  # noqa: T201
    assert counted[0] <= MOST[0]
    assert counted[1] <= MOST[1]
