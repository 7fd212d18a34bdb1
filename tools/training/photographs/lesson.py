"""What one training step teaches: captions of a batch of pictures, with dropped patches and mirrored pictures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tools.training.learning import Plan, learn, weights
from tools.training.photographs.model import (
    END,
    PROMPT,
    START,
    Captioner,
    language_model,
    start_in_closed_form,
    tokenizer_of,
    word_tokens,
)
from tools.training.photographs.prepare import load

STAGE = "caption"
CAPTIONS = 3
"""Captions of a picture in one step."""
KEPT = 0.5
"""Share of the patches that a step sees."""
DEV = 48
"""Development pictures of the figures in the log."""


class CaptionLesson:
    """Captioning loss on the pictures of a prepared folder, for ``tools.training.learning``."""

    def __init__(self, folder: Path, *, batch: int = 4, seed: int = 0, every: int = 50) -> None:
        torch.manual_seed(seed)
        self.prepared, self.batch, self.seed, self.every = load(folder), batch, seed, every
        self.tokenizer = tokenizer_of(self.prepared.parts.language)
        self.features = self.prepared.features()
        self.train, self.dev = self.prepared.of("train"), self.prepared.of("dev")[:DEV]
        language = language_model(self.prepared.parts.language, len(self.tokenizer))
        self.module = Captioner(language, self.features.shape[-1])
        self.before = self._ids(f"{START}user\n")
        self.ask = self._ids(f"{PROMPT}{END}\n{START}assistant\n")
        self.end = self._ids(END)
        bags = [word_tokens(self.tokenizer, self._captions(row)) for row in self.train]
        start_in_closed_form(self.module, self.features[self.train], bags)

    def loss(self, step: int, rank: int, world: int) -> tuple[Any, dict[str, float]]:
        """Mean loss of this worker's pictures; now and then also that of development pictures, right and wrong."""
        rng = np.random.default_rng((self.seed, step, rank))
        rows = self._rows(step * world + rank)
        features = torch.from_numpy(np.asarray(self.features[rows], np.float32))
        side = round(features.shape[1] ** 0.5)
        mirrored = features.reshape(len(rows), side, side, -1).flip(2).reshape(features.shape)
        features = torch.where(
            torch.from_numpy(rng.random(len(rows)) < 0.5)[:, None, None], mirrored, features
        )
        kept = np.sort(rng.permutation(side * side)[: max(1, round(KEPT * side * side))])
        answers = []
        for row in rows:
            texts = self._captions(row)
            answers.append([self._answer(texts[i]) for i in rng.permutation(len(texts))[:CAPTIONS]])
        total, tokens = self.module.loss(features[:, kept], self.before, self.ask, answers)
        figures = self.figures() if rank == 0 and step % self.every == 0 else {}
        return total / tokens, figures

    @torch.no_grad()
    def figures(self) -> dict[str, float]:
        """Loss per token of development captions, given the picture and given another one."""
        answers = [[self._answer(text) for text in self._captions(row)[:2]] for row in self.dev]
        seen = {"right": self.dev, "wrong": self.dev[1:] + self.dev[:1]}
        found = {}
        for name, rows in seen.items():
            total = tokens = 0.0
            for start in range(0, len(rows), 16):
                part = slice(start, start + 16)
                features = torch.from_numpy(np.asarray(self.features[rows[part]], np.float32))
                loss, count = self.module.loss(features, self.before, self.ask, answers[part])
                total, tokens = total + float(loss), tokens + count
            found[name] = total / tokens
        return found

    def _rows(self, number: int) -> list[int]:
        """Pictures of the batch with this number: every picture once in each epoch."""
        count = len(self.train)
        places = range(number * self.batch, (number + 1) * self.batch)
        orders = {
            e: np.random.default_rng((self.seed, e)).permutation(count) for e in {p // count for p in places}
        }
        return [self.train[orders[p // count][p % count]] for p in places]

    def _captions(self, row: int) -> list[str]:
        return self.prepared.captions[self.prepared.names[row]]

    def _answer(self, text: str) -> list[int]:
        return self._ids(text) + self.end

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)


def train(folder: Path, *, steps: int, workers: int = 2, batch: int = 4, every: int = 50) -> None:
    """Train to ``steps``; the same call resumes from the last checkpoint."""
    plan = Plan(STAGE, steps=steps, rate=1e-3, warmup=20, floor=0.03, decay=0.01, every=every, log=10)
    learn(folder, plan, partial(CaptionLesson, folder, batch=batch, every=every), workers)


def trained(folder: Path) -> CaptionLesson:
    """The lesson with the parameters of the last checkpoint."""
    lesson = CaptionLesson(folder)
    lesson.module.load_state_dict(weights(folder, STAGE), strict=False)
    return lesson
