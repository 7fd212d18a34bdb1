"""Training examples: several short conversations about one image, packed after one copy of its visual tokens.

Each conversation sees the image and itself, never its neighbors, exactly as if it stood alone; packing only saves
the cost of encoding the image again for each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from reweigh.world.scenes import Scene
from reweigh.world.vocabulary import mentions
from tools.training.grammar import (
    BRIEF_PROMPTS,
    DETAIL_PROMPTS,
    USUAL,
    Habit,
    answer,
    brief,
    describe,
    question,
    questions,
)

BEFORE = "<s>USER: "
AFTER = "\n"


@dataclass(frozen=True)
class Mix:
    """Which conversations each image gets, and how they weigh in the loss."""

    details: int = 2
    briefs: int = 1
    asked: int = 5
    habit: Habit = USUAL
    """How the speaker of the long descriptions departs from the scene."""
    answer_weight: float = 5.0
    """Weight of the word yes or no in the loss: one token a question, against fifty of a description."""
    object_weight: float = 3.0
    """Weight of the pieces of object names in descriptions: what must be seen, against what is grammar."""
    repeat_weight: float = 1.0
    """Weight of the loss that keeps objects already named from being named again."""


@dataclass(frozen=True)
class Packed:
    """A batch: token ids after the image, their positions, targets with weights, and which tokens may attend to which."""

    before: torch.Tensor  # (n,) ids in front of the image
    ids: torch.Tensor  # (B, T)
    positions: torch.Tensor  # (B, prefix + T)
    weights: (
        torch.Tensor
    )  # (B, T) weight of predicting ids[:, t] from the token before it in its conversation
    previous: torch.Tensor  # (B, T) index, in the whole sequence, of that token before
    mask: torch.Tensor  # (B, 1, prefix + T, prefix + T) True where attention may go
    again: (
        torch.Tensor
    )  # (K, 3) row, place in ids, token of an object already named that must not be said there


def turns(scene: Scene, mix: Mix, seed: int) -> list[tuple[str, str, float]]:
    """Prompts and answers about a scene, with the weight of the answer's first token."""
    rng = random.Random(f"turns/{scene.id}/{seed}")
    out = []
    for k in range(mix.details):
        prompt = DETAIL_PROMPTS[int(rng.random() * len(DETAIL_PROMPTS))]
        out.append((prompt, describe(scene, seed + k, mix.habit).text, 1.0))
    for k in range(mix.briefs):
        prompt = BRIEF_PROMPTS[int(rng.random() * len(BRIEF_PROMPTS))]
        out.append((prompt, brief(scene, seed + k).text, 1.0))
    for name, present in questions(scene, mix.asked, seed):
        out.append((question(name, rng.random() < 0.2), answer(present), mix.answer_weight))
    return out


def pack(batch: list[Scene], tokenizer: Any, mix: Mix, visual: int, seed: int) -> Packed:
    """Build one batch of packed conversations."""
    before = tokenizer(BEFORE, add_special_tokens=False).input_ids
    prefix = len(before) + visual
    rows = [_row([_encode(turn, tokenizer, mix) for turn in turns(s, mix, seed)], prefix) for s in batch]
    columns = [row for row, _ in rows]
    longest = max(len(row[0]) for row in columns)
    ids, weights, previous, segments, positions = (
        np.stack([np.pad(row[k], (0, longest - len(row[k])), constant_values=pad) for row in columns])
        for k, pad in ((0, 0), (1, 0.0), (2, 0), (3, -1), (4, 0))
    )
    whole = np.concatenate([np.zeros((len(rows), prefix), np.int64), segments], axis=1)
    order = np.arange(prefix + longest)
    same = (whole[:, :, None] == whole[:, None, :]) | (whole[:, None, :] == 0)
    mask = same & (order[:, None] >= order[None, :])
    front = np.broadcast_to(np.arange(prefix), (len(rows), prefix))
    return Packed(
        torch.tensor(before),
        torch.from_numpy(ids),
        torch.from_numpy(np.concatenate([front, positions], axis=1)),
        torch.from_numpy(weights.astype(np.float32)),
        torch.from_numpy(previous),
        torch.from_numpy(mask[:, None]),
        torch.tensor([(r, *pair) for r, (_, again) in enumerate(rows) for pair in again]).reshape(-1, 3),
    )


@dataclass(frozen=True)
class _Encoded:
    """One conversation: tokens, weights, and (place, token) pairs where an object named before could be named again."""

    ids: list[int]
    weights: list[float]
    again: list[tuple[int, int]]


def _encode(turn: tuple[str, str, float], tokenizer: Any, mix: Mix) -> _Encoded:
    prompt, said, first = turn
    asked = tokenizer(f"{AFTER}{prompt} ASSISTANT:", add_special_tokens=False).input_ids
    told = tokenizer(f" {said}</s>", add_special_tokens=False, return_offsets_mapping=True)
    weights = [1.0] * len(told.input_ids)
    named: list[int] = []
    again: list[tuple[int, int]] = []
    for start, end, *_ in mentions(f" {said}"):
        pieces = [k for k, (a, b) in enumerate(told.offset_mapping) if a < end and b > start]
        again += [(len(asked) + pieces[0], token) for token in named]
        named.append(told.input_ids[pieces[0]])
        for k in pieces:
            weights[k] = mix.object_weight
    weights[0] *= first
    return _Encoded(asked + told.input_ids, [0.0] * len(asked) + weights, again)


def _row(
    conversations: list[_Encoded], prefix: int
) -> tuple[list[np.ndarray[Any, Any]], list[tuple[int, int]]]:
    ids: list[int] = []
    weights: list[float] = []
    previous: list[int] = []
    segments: list[int] = []
    positions: list[int] = []
    again: list[tuple[int, int]] = []
    for number, one in enumerate(conversations, start=1):
        start, length = len(ids), len(one.ids)
        ids += one.ids
        weights += one.weights
        again += [(start + place, token) for place, token in one.again]
        previous += [prefix - 1, *range(prefix + start, prefix + start + length - 1)]
        segments += [number] * length
        positions += range(prefix, prefix + length)
    return [np.array(column) for column in (ids, weights, previous, segments, positions)], again
