"""A benchmark of three words, so that scoring and comparing can be tested without data or language tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reweigh.lab.tasks.base import Benchmark, Item, Record, Response, Summary
from reweigh.lab.tasks.chair.metrics import METRICS, count_caption, figures, summarize_metrics

TRUTH = {i: {"dog", "cat"} if i % 2 else {"dog"} for i in range(12)}


class Toy(Benchmark):
    name = "toy"
    metrics = METRICS
    figures = staticmethod(figures)

    def __init__(self, data_dir: str | Path, *, loud: bool = False) -> None:
        super().__init__(data_dir)
        self.loud = loud

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        return [Record(id=i, image=f"{i}.png", prompt="Say.", max_new_tokens=8) for i in list(TRUTH)[:limit]]

    def summarize(self, items: Sequence[Item]) -> Summary:
        return Summary.of(
            items,
            benchmark="toy",
            metrics=summarize_metrics(items),
            scorer={"loud": self.loud, "unparsed": 3},
            official={"CHAIRs": 1.5, "Len": None},
        )

    def score_response(self, response: Response) -> Item:
        truth = TRUTH[int(response.id)]
        found = list(re.finditer(r"dog|cat|bus", response.text))
        objects = [match.group() for match in found]
        mentions = [
            {"object": m.group(), "start": m.start(), "end": m.end(), "hallucinated": m.group() not in truth}
            for m in found
        ]
        return Item(
            id=response.id,
            image=int(response.id),
            counts=count_caption(objects, truth, words=len(response.text.split())),
            details={"mentions": mentions, "missed": sorted(truth - set(objects))},
        )
