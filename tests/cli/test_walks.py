"""How much code runs for one evaluation and one comparison: distinct functions of ``src/reweigh``, and their files.

Generator expressions, comprehensions and lambdas belong to the function that holds them. ``pytest -s`` prints the numbers,
a failure prints the functions.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

import reweigh

SOURCE = str(Path(reweigh.__file__).parent)
SHORT = ["--limit", "3", "--batch-size", "3", "--max-new-tokens", "4", "--quiet"]
WALKS = {
    "eval run": (["eval", "run", "world", "-b", "world"], (530, 88)),
    "compare": (["compare", "world", "-m", "base,reweigh"], (670, 105)),
}


@pytest.mark.parametrize("name", WALKS)
def test_a_command_stays_short(cli, tmp_path, name):
    command, most = WALKS[name]
    found: Counter[str] = Counter()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
            found[f"{code.co_filename[len(SOURCE) + 1 :]}:{code.co_qualname}"] += 1

    pictures = ["--data", tmp_path / "pictures"]
    assert cli(*command, "-o", tmp_path / "first", *SHORT, *pictures).code == 0  # imports and drawn pictures
    sys.setprofile(note)
    try:
        done = cli(*command, "-o", tmp_path / "out", *SHORT, *pictures)
    finally:
        sys.setprofile(None)
    assert done.code == 0, done.err
    files = Counter(one.partition(":")[0] for one in found)
    print(f"\n{name}: {len(found)} functions in {len(files)} files")  # noqa: T201
    told = "\n".join(f"{count:4} {file}" for file, count in files.most_common())
    assert (len(found) <= most[0], len(files) <= most[1]) == (True, True), (
        f"{len(found)} in {len(files)}\n{told}"
    )
