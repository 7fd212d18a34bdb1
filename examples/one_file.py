"""ReWEIGH on one page: measure what an image supports, register what is normal, suppress what falls short.

    python examples/one_file.py

Nothing here but the method. What a model is made of and which columns of a prompt show the image, `reweigh.families` says.
The package writes the same tables and the same words, which a test checks on six families. It adds what a page has no room
for: beams, kept caches, drafts, a beta per row, traces, and a refusal wherever the numbers would not mean what they say.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from reweigh.families.anatomy import find_anatomy
from reweigh.families.positions import layout

UNIT = 2**40
"""Reciprocal ranks are added up in whole units of 1 / UNIT, so that the order of the positions cannot matter."""


# 1. Measure: how strongly does the image support each token? ----------------------------------------------------------


def reciprocal_ranks(logits: Tensor) -> Tensor:
    """Rank the vocabulary at each position (P, V) and return 1 / rank in units; equal logits share the best rank."""
    ascending = logits.sort(dim=1).values
    not_above = torch.searchsorted(ascending, logits, right=True)
    ranks = 1 + logits.shape[1] - not_above
    return (UNIT / ranks.double()).round().long()


def evidence(anatomy: Any, states: Tensor) -> Tensor:
    """DMRR: the mean of 1 / rank over an image's positions, from its residual states (P, d)."""
    total = torch.zeros(anatomy.rows, dtype=torch.long)
    for some in states.split(288):  # positions by vocabulary is large
        logits = anatomy.head(anatomy.norm(some))[:, : anatomy.rows]
        total += reciprocal_ranks(logits.float()).sum(dim=0)
    return (total.double() / UNIT / len(states)).float()


@contextmanager
def watching(anatomy: Any, layer: int, inputs: dict[str, Any]) -> Iterator[list[Tensor | None]]:
    """While the model generates, keep what the image of each row supports; a row without image has ``None``."""
    found: list[Tensor | None] = []
    visual = layout(anatomy.family, anatomy.config, inputs["input_ids"], inputs)

    def read(_: Any, args: tuple[Tensor, ...]) -> None:
        if not found:  # the first pass reads the prompt; later ones show nothing new of the image
            for row, places in enumerate(visual):
                columns = [column for column, _ in places]
                found.append(evidence(anatomy, args[0][row, columns]) if columns else None)

    handle = anatomy.exit_of(layer).register_forward_pre_hook(
        read
    )  # what leaves the block, before the final norm
    try:
        yield found
    finally:
        handle.remove()


# 2. Register: how much evidence is normal for a token that the model considers? ---------------------------------------


def candidates(logits: Tensor, mass: float = 0.9, least: int = 2, most: int = 50) -> Tensor:
    """The likeliest tokens of one step (V,) that together hold ``mass``; of equal logits, the lower id comes first."""
    order = logits.sort(descending=True, stable=True).indices[:most]
    shares = logits.softmax(dim=0)[order].double()
    before = shares.cumsum(dim=0) - shares
    return order[(before < mass) | (torch.arange(len(order)) < least)]


def lack(reference: Any, found: Any, b0: float) -> Any:
    """By how much evidence falls short of a reference, in units of b0: from 0 (not at all) to 1."""
    return ((reference - found) / b0).clip(0, 1)


def range_index(count: int) -> int | None:
    """The k for which the k-th smallest and k-th largest of ``count`` values hold the median in 95 of 100 samples."""
    if count > 200:
        return math.floor((count + 1 + NormalDist().inv_cdf(0.025) * math.sqrt(count)) / 2)
    tail = k = 0
    while 40 * (tail := tail + math.comb(count, k)) <= 2**count:
        k += 1
    return k or None


class Table(NamedTuple):
    """References of the registered tokens, for one layer of one model."""

    layer: int
    b0: float
    references: dict[int, float]


def register(layer: int, observed: dict[int, list[float]]) -> Table:
    """Keep the median of each token whose edit would hardly change if the median were a little off."""
    b0 = float(np.median(np.concatenate([np.array(values) for values in observed.values()])))
    references = {}
    for token, values in sorted(observed.items()):
        ordered, k = np.sort(values), range_index(len(values))
        if k is not None:
            change = lack(ordered[-k], ordered, b0) - lack(ordered[k - 1], ordered, b0)
            if np.abs(change).mean() < 0.5:
                references[token] = float(np.median(ordered))
    return Table(layer, b0, references)


def calibrate(model: Any, batches: list[dict[str, Any]], layer: int, max_new_tokens: int = 512) -> Table:
    """Let the unedited model describe unlabeled images, and note the evidence of everything it considers saying."""
    anatomy, observed = find_anatomy(model), defaultdict(list)
    ends = np.array(model.generation_config.eos_token_id).flatten()
    for inputs in batches:
        steps: list[list[Tensor]] = []

        def note(_: Tensor, logits: Tensor, steps: list[list[Tensor]] = steps) -> Tensor:
            steps.append([candidates(row) for row in logits])
            return logits

        with watching(anatomy, layer, inputs) as found:
            options = {"do_sample": False, "max_new_tokens": max_new_tokens}
            said = model.generate(**inputs, logits_processor=[note], **options)[:, -len(steps) :]
        for row, support in enumerate(found):
            for step, considered in enumerate(steps):
                for token in considered[row].tolist():
                    if token < len(support):  # tokens that the image part of the model added have no evidence
                        observed[token].append(float(support[token]))
                if said[row, step].item() in ends:
                    break
    return register(layer, observed)


# 3. Intervene: a candidate with less evidence than normal loses up to beta of its logit ------------------------------


def generate(model: Any, inputs: dict[str, Any], table: Table, beta: float, **options: Any) -> Tensor:
    """Generate with the edit, greedily or by sampling."""
    anatomy, tokens = find_anatomy(model), torch.tensor(list(table.references))
    references = torch.tensor(list(table.references.values()))
    with watching(anatomy, table.layer, inputs) as found:
        strengths: list[Tensor] = []

        def edit(_: Tensor, logits: Tensor) -> Tensor:
            if not strengths:  # once for each image
                for support in found:
                    strengths.append(torch.zeros(logits.shape[1]))
                    if support is not None:
                        strengths[-1][tokens] = lack(references, support[tokens], table.b0)
            edited = logits.clone()
            for row, strength in enumerate(strengths):
                chosen = candidates(logits[row])
                edited[row, chosen] -= beta * strength[chosen]
            return edited

        output: Tensor = model.generate(**inputs, logits_processor=[edit], **options)
    return output


def main() -> None:
    """Calibrate the embedded model on a few scenes, and describe another one."""
    import reweigh
    from reweigh.families.prompts import build_inputs
    from reweigh.world import path
    from reweigh.world.scenes import scene

    model, processor = reweigh.load(path())
    prompt, layer = "Please describe this image in detail.", 3
    unlabeled = [scene("calibration", index=number).image() for number in range(64)]
    batches = [build_inputs(model, processor, unlabeled[at : at + 8], [prompt] * 8) for at in range(0, 64, 8)]
    table = calibrate(model, batches, layer, max_new_tokens=110)
    print(f"{len(table.references)} tokens are registered; b0 is {table.b0:.4f}")
    inputs = build_inputs(model, processor, [scene("evaluation", index=0).image()], [prompt])
    for beta in (0.0, 3.5):
        said = generate(model, inputs, table, beta, do_sample=False, max_new_tokens=110)
        answer = said[0, inputs["input_ids"].shape[1] :]
        print(f"beta {beta}: {processor.tokenizer.decode(answer, skip_special_tokens=True).strip()}")


if __name__ == "__main__":
    main()
