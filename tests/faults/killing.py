"""A process that loads the embedded model once and forks a command many times, to kill each at a moment of its own.

Called as ``python -m faults.killing FOLDER SEED NAME ARGUMENT...`` with ``{out}`` in place of the command's folder.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from reweigh.cli import common, start

ROUNDS, KILLS = 2, 3
"""Folders that are disturbed, and how often each is at most."""


def forked(arguments: list[str], log: Path, seconds: float | None = None) -> int:
    """Run the command in a child; kill it after some seconds, if they are given. Gives what ``waitpid`` says."""
    child = os.fork()
    if child == 0:
        with log.open("ab") as told:
            for stream in (1, 2):
                os.dup2(told.fileno(), stream)
        sys.argv = ["reweigh", *arguments]
        code = 70
        try:
            start.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def main(place: Path, seed: int, template: list[str]) -> None:
    """Run the command once undisturbed, then into other folders with kills, each to its end."""
    loaded = common.Loading(model_option=["dtype=float32", "device=cpu"]).load("world")
    common.Loading.load = lambda self, name: loaded  # type: ignore[method-assign]

    def arguments(folder: str) -> list[str]:
        return [part.replace("{out}", str(place / folder)) for part in template]

    begin = time.monotonic()
    if forked(arguments("whole"), place / "log") != 0:
        raise SystemExit((place / "log").read_text())
    length, dice, kills = time.monotonic() - begin, Random(seed), 0
    for number in range(ROUNDS):
        for _ in range(KILLS):
            if forked(arguments(f"killed-{number}"), place / "log", dice.uniform(0, length)) == 0:
                break
            kills += 1
        if forked(arguments(f"killed-{number}"), place / "log") != 0:
            raise SystemExit((place / "log").read_text())
    print("kills", kills)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
