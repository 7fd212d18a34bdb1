"""Workers whose results come back in any order."""

from __future__ import annotations

import random


class Shuffled:
    """A few workers at a time, whoever is done first; ``given`` lists the tasks that were handed out."""

    def __init__(self, work, workers, seed):
        self.work, self.workers = work, workers
        self.dice = random.Random(seed)
        self.given = []

    def unordered(self, tasks):
        waiting, running = iter(tasks), []
        while True:
            while len(running) < self.workers and (task := next(waiting, None)) is not None:
                self.given.append(task[0])
                running.append((task[0], self.work(task[1])))
            if not running:
                return
            yield running.pop(self.dice.randrange(len(running)))
