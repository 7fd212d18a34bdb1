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
        numbers, running = iter(tasks), []
        while True:
            while len(running) < self.workers and (number := next(numbers, None)) is not None:
                self.given.append(number)
                running.append((number, self.work(tasks[number])))
            if not running:
                return
            yield running.pop(self.dice.randrange(len(running)))
