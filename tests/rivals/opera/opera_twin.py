"""OPERA's official search written out once more: plain lists and NumPy, one beam and one column at a time.

Only choices whose outcome the library decides (the order of equal scores) are left to torch. A toy stands for the model:
it gives the logits after some tokens, and the attention row of the last of them over prompt and answer.
"""

from __future__ import annotations

import copy
import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

WINDOW = 512


@dataclass(frozen=True)
class Toy:
    """A model whose every answer is drawn from a hash of the tokens; ``anchor`` is an answer column all lean on."""

    seed: int
    vocab: int = 40
    prompt: int = 5
    anchor: int | None = None
    strength: int = 300
    end: int | None = None
    end_bonus: float = 0.0

    def _draw(self, tokens, what):
        return np.random.default_rng(zlib.crc32(repr((self.seed, what, tuple(tokens))).encode()))

    def logits(self, tokens):
        values = self._draw(tokens, "logits").normal(0, 2, self.vocab)
        if self.end is not None:
            values[self.end] += self.end_bonus
        return values.astype(np.float32)

    def row(self, tokens):
        """Attention of the last token, an exact division of 1024 parts."""
        draw, width = self._draw(tokens, "row"), self.prompt + len(tokens)
        weights = draw.uniform(0.2, 1.0, width)
        if self.anchor is not None and len(tokens) > self.anchor:
            weights[self.prompt + self.anchor] += draw.uniform(0.5, 1.5) * self.strength / 1024 * width
        parts = np.floor(weights / weights.sum() * 1024)
        parts[0] += 1024 - parts.sum()
        return (parts / 1024).astype(np.float32)


def products(rows, scale):
    """Column scores of an answer's attention rows, in 16 bits."""
    found = []
    for column in range(len(rows)):
        product = np.float32(1)
        with np.errstate(over="ignore", under="ignore"):
            for row in rows[column:]:
                product = np.float32(product * np.float32(np.float32(scale) * row[column]))
            found.append(np.float16(np.float32(1e-7) * product))
    return found


def mode(values):
    counts = Counter(values)
    return min(value for value in counts if counts[value] == max(counts.values()))


class Hypotheses:
    def __init__(self, size, power):
        self.size, self.power, self.kept, self.worst = size, power, [], 1e9

    def add(self, tokens, total, length):
        score = total / length**self.power
        if len(self.kept) < self.size or score > self.worst:
            self.kept.append((score, tokens))
            if len(self.kept) > self.size:
                ranked = sorted((score, place) for place, (score, _) in enumerate(self.kept))
                del self.kept[ranked[0][1]]
                self.worst = ranked[1][0]
            else:
                self.worst = min(score, self.worst)

    def done(self, best, length, early):
        if len(self.kept) < self.size:
            return False
        return True if early else self.worst >= best / length**self.power


def search(toy, *, beams, candidates, scale, threshold, weight, image, eos, tokens, power=1.0, early=False):
    """The best hypotheses first, as (score, tokens), and the lengths of each roll-back."""
    said, totals = [()] * beams, [0.0] + [-1e9] * (beams - 1)
    maps = [[] for _ in range(beams)]
    finished, history, places = Hypotheses(beams, power), [], []
    uses, rejects = [0] * WINDOW, [[] for _ in range(WINDOW)]
    parents = chosen = None
    rollbacks = []
    while True:
        state = {"said": list(said), "totals": list(totals), "maps": copy.deepcopy(maps)}
        state |= {"finished": copy.deepcopy(finished), "parents": parents, "chosen": chosen}
        logits = [toy.logits(one) for one in said]
        length = len(said[0]) + 1
        scores, leanings = [], []
        for beam in range(beams):
            best = torch.topk(torch.tensor(logits[beam]), candidates)
            filled = np.full(toy.vocab, -999.0, dtype=np.float32)
            leans = []
            for value, token in zip(best.values.numpy(), best.indices.tolist(), strict=True):
                row = toy.row((*said[beam], token))
                row = row / row.sum()
                columns = products([*maps[beam], row[toy.prompt :]], scale)
                leans.append(int(np.argmax(columns)))
                on_image = np.float32(sum(row[column] for column in image))
                penalty = -on_image if length <= 10 else max(columns)
                filled[token] = np.float32(value - np.float32(type(penalty)(weight) * penalty))
            scores.append(filled)
            leanings.append(mode(leans))
        places.append(leanings)
        history.append(state)
        common = mode(leanings)
        counts = [sum(past[beam] == common for past in places) for beam in range(beams)]
        target = None
        if all(count > threshold for count in counts) and common >= 10:
            target = common + 1
            if uses[target] >= candidates:
                target -= 1
            if uses[target] >= candidates:
                target = None
        if target is not None:
            uses[target] += 1
            for gone in range(length - target - 2):
                history.pop()
                places.pop()
                rejects[-(gone + 1)] = []
            before, after = history[-2], history[-1]
            rollbacks.append((length - 1, len(before["said"][0])))
            said, totals, maps = list(before["said"]), list(before["totals"]), copy.deepcopy(before["maps"])
            finished = before["finished"]  # the very object that the history keeps
            history.pop()
            places.pop()
            rejects[target + 1] = []
            rejects[target] = rejects[target] + list(zip(after["parents"], after["chosen"], strict=True))
            scores = [toy.logits(one) for one in said]
            scores = [one - (np.float32(999) + one.min()) for one in scores]
            for parent, token in rejects[target]:
                scores[parent][token] = -999.0
        table = torch.log_softmax(torch.tensor(np.stack(scores)), dim=-1)
        table = table + torch.tensor(totals, dtype=torch.float32)[:, None]
        best = torch.topk(table.view(1, -1), 2 * beams, dim=1)
        length = toy.prompt + len(said[0])
        parents, chosen, new_totals = [], [], []
        for rank, (total, place) in enumerate(
            zip(best.values[0].tolist(), best.indices[0].tolist(), strict=True)
        ):
            beam, token = divmod(place, toy.vocab)
            if token in eos:
                if rank < beams:
                    finished.add((*said[beam], eos[0]), total, length)
                continue
            parents.append(beam)
            chosen.append(token)
            new_totals.append(total)
            if len(parents) == beams:
                break
        done = finished.done(max(best.values[0].tolist()), length + 1, early)
        said = [(*said[beam], token) for beam, token in zip(parents, chosen, strict=True)]
        maps, totals = [list(maps[beam]) for beam in parents], new_totals
        if done or len(said[0]) == tokens:
            break
        for beam in range(beams):
            row = toy.row(said[beam])
            maps[beam].append((row / row.sum())[toy.prompt :])
    if not done:
        for one, total in zip(said, totals, strict=True):
            finished.add(one, total, toy.prompt + len(one))
    ranked = sorted(finished.kept, key=lambda one: one[0])
    return ranked[::-1], rollbacks
