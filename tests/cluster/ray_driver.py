"""A driver whose workers need no model, for a process of its own: ``ray_driver.py FOLDER WORKERS TASKS``.

TASKS is a JSON list; each task is a list of seconds, those of its first attempt, of its second, and so on. Every attempt
leaves a file in FOLDER when it begins and another when it returns; results are printed as they count.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from reweigh.cluster import Cluster, Worker, ray_pool


class Sleeper:
    """Takes the time that its task says."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def work(self, task: tuple[int, list[float]]) -> int:
        number, seconds = task
        attempt = self._attempt(number)
        time.sleep(seconds[min(attempt, len(seconds) - 1)])
        (self.folder / f"{number}.{attempt}.returned").touch()
        return number * number

    def _attempt(self, number: int) -> int:
        attempt = 0
        while True:
            try:
                (self.folder / f"{number}.{attempt}").touch(exist_ok=False)
            except FileExistsError:
                attempt += 1
            else:
                return attempt


def open_sleeper(folder: str) -> Worker:
    return {"worker": "sleeper"}, Sleeper(folder).work


def main(folder: str, workers: str, tasks: str) -> None:
    """Work through the tasks."""
    given = [(number, (number, seconds)) for number, seconds in enumerate(json.loads(tasks))]
    with ray_pool(Cluster(workers=int(workers)), open_sleeper, {"folder": folder}) as pool:
        for number, result in pool.unordered(given):
            sys.stdout.write(f"result {number} {result}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
