"""A crew whose workers return, die or dawdle as dice say."""

from __future__ import annotations

import random

from reweigh.scale.crew import Report
from reweigh.scale.schedule import ATTEMPTS


class Dice:
    """A crew whose workers return, die or dawdle as dice say; late copies report after the first one did."""

    def __init__(self, workers, seed, deaths=0.3, fatal=()):
        self.workers = [f"worker {number}" for number in range(workers)]
        self.dice = random.Random(seed)
        self.deaths, self.fatal = deaths, fatal
        self.busy, self.clock = {}, 0.0
        self.lost, self.given, self.returned = {}, [], []

    def now(self):
        return self.clock

    def idle(self):
        return [worker for worker in self.workers if worker not in self.busy]

    def give(self, worker, shard, task):
        self.given.append(shard)
        long = 50.0 if self.dice.random() < 0.2 else 1.0
        self.busy[worker] = shard, task, self.clock + self.dice.uniform(0.5, 1.5) * long

    def wait(self):
        self.clock += self.dice.uniform(0, 2)
        ready = [worker for worker, (_, _, end) in self.busy.items() if end <= self.clock]
        self.dice.shuffle(ready)
        reports = [self.report(worker) for worker in ready]
        self.returned += [report for report in reports if report.failure is None]
        twice = [self.dice.choice(self.returned)] if self.returned and self.dice.random() < 0.3 else []
        return reports + twice  # a result that comes a second time

    def report(self, worker):
        shard, task, _ = self.busy.pop(worker)
        dies = self.lost.get(shard, 0) < ATTEMPTS - 1 and self.dice.random() < self.deaths
        if dies or shard in self.fatal:
            self.lost[shard] = self.lost.get(shard, 0) + 1
            return Report(worker, shard, failure="killed")
        return Report(worker, shard, result=task * task)
