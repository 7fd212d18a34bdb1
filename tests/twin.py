"""An independent reading of the method for tests: plain loops, no cache, nothing of the package but its table.

`greedy` decodes one row by full forward passes; `hand_edited` patches a model's forward with the edit, so that any
mode of ``generate`` can be compared. Positions, states, ranks, candidates and edit are all found in another way.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from checkpoints import load, picture, prompt
from reweigh.tables.table import ReferenceTable

GROWING = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


@dataclass(frozen=True)
class Case:
    """A loaded checkpoint."""

    family: str
    model: Any
    processor: Any

    def inputs(
        self,
        seeds: Sequence[int | Sequence[int] | None] = (1,),
        texts: Sequence[str] = ("Please describe this image in detail.",),
        size: tuple[int, int] = (70, 50),
    ) -> dict[str, torch.Tensor]:
        """Rows of pictures (by seed; several or none too) and texts, left-padded."""
        groups = [[] if s is None else [s] if isinstance(s, int) else list(s) for s in seeds]
        rendered = [
            prompt(self.processor, text, images=len(group)) for text, group in zip(texts, groups, strict=True)
        ]
        pictures: Any = [[picture(seed, size) for seed in group] for group in groups]
        if self.family != "gemma3":
            pictures = [image for group in pictures for image in group]
        options = {"return_tensors": "pt", "padding": True}
        if not any(groups):
            return dict(self.processor(text=rendered, **options))
        return dict(self.processor(images=pictures, text=rendered, **options))


@functools.cache
def case(path: Path) -> Case:
    """The checkpoint in ``path``, loaded once: tests must leave the model as it was."""
    model, processor = load(path)
    return Case(path.name.removesuffix("-bare"), model, processor)


class MadeUpTable(ReferenceTable):
    """A table that no model made, and that fits any, so that tests need not force it."""

    def check_pairing(self, identity: Any, *, dtype: str, rows: int) -> None:
        """Accept every model."""


def table(vocab: int, *, layer: int = 2, seed: int = 0, share: float = 0.7, **about: Any) -> ReferenceTable:
    """References around what random models show, so that strengths of 0, 1 and all between occur."""
    random = np.random.default_rng(seed)
    tokens = np.flatnonzero(random.random(vocab) < share).astype(np.int64)
    references = random.uniform(0.001, 0.05, len(tokens)).astype(np.float32).astype(np.float64)
    kind = ReferenceTable if "identity" in about else MadeUpTable
    named = {"identity": {"model_id": "made up"}, **about}
    return kind(layer, 0.017, tokens, references, np.full(len(tokens), 9), named)


def parts(model: Any) -> tuple[Any, Any, Any]:
    """(text decoder, head, module whose output holds the logits), by explicit paths."""
    if model.config.model_type == "instructblip":
        return model.language_model.model, model.language_model.lm_head, model.language_model
    return model.model.language_model, model.lm_head, model


def hidden_states(model: Any, inputs: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """What transformers reports, in a plain forward pass."""
    with torch.no_grad():
        output = model(**inputs, use_cache=False, output_hidden_states=True)
    return tuple(output.get("hidden_states") or output.language_model_outputs.hidden_states)


def visual_columns(
    model: Any, inputs: Mapping[str, Any], states: tuple[torch.Tensor, ...]
) -> list[list[int]]:
    """Columns under the image token; newline features are told by their value."""
    shown = inputs["input_ids"] == model.config.image_token_id
    newline = getattr(model.model, "image_newline", None) if hasattr(model, "model") else None
    if newline is not None:
        shown &= ~(states[0] == newline).all(-1)
    return [row.nonzero().flatten().tolist() for row in shown]


def lens(model: Any, inputs: Mapping[str, Any], layer: int) -> list[torch.Tensor]:
    """Logits (P, V) of each row's visual positions at a block, from ``hidden_states``."""
    decoder, head, _ = parts(model)
    states = hidden_states(model, inputs)
    last = layer == len(decoder.layers) - 1
    rows = visual_columns(model, inputs, states)
    with torch.no_grad():
        read = [states[layer + 1][row, columns] for row, columns in enumerate(rows)]
        return [head(state if last else decoder.norm(state)) for state in read]


def evidence(
    model: Any, inputs: Mapping[str, Any], layer: int, rows: int | None = None
) -> list[np.ndarray | None]:
    """DMRR by comparing every token of the first ``rows`` with every other of them."""
    found: list[np.ndarray | None] = []
    for logits in lens(model, inputs, layer):
        ranks = [1 + (row[None, :] > row[:, None]).sum(1) for row in logits[:, :rows].float()]
        found.append(np.mean([1 / rank.double().numpy() for rank in ranks], axis=0) if ranks else None)
    return found


def strengths(references: ReferenceTable, dmrr: np.ndarray | None, vocab: int) -> np.ndarray:
    """s over the vocabulary, zero where a token is not registered or the row has no image."""
    laid_out = np.zeros(vocab)
    if dmrr is not None:
        for token, reference in zip(references.tokens, references.references, strict=True):
            laid_out[token] = min(max((reference - dmrr[token]) / references.b0, 0.0), 1.0)
    return laid_out


def candidates(logits: np.ndarray) -> list[int]:
    """The shortest prefix by probability that reaches 0.9, of 2 to 50 tokens; ties by lower id."""
    z = logits.astype(np.float64)
    probability = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    order = sorted(range(len(z)), key=lambda token: (-z[token], token))
    chosen, mass = [], 0.0
    for token in order[:50]:
        if mass >= 0.9 and len(chosen) >= 2:
            break
        chosen.append(token)
        mass += probability[token]
    return chosen


def edited(logits: np.ndarray, strength: np.ndarray, beta: float) -> np.ndarray:
    """z' in float64."""
    after = logits.astype(np.float64).copy()
    for token in candidates(logits):
        after[token] -= beta * strength[token]
    return after


def strengths_of(model: Any, inputs: Mapping[str, Any], references: ReferenceTable) -> list[np.ndarray]:
    """s of each row."""
    vocab = parts(model)[1].weight.shape[0]
    found = evidence(model, inputs, references.layer, references.about.get("rows"))
    return [strengths(references, row, vocab) for row in found]


def extended(inputs: Mapping[str, Any], token: int) -> dict[str, Any]:
    """The inputs of one row with one more token."""
    longer = dict(inputs)
    for name in GROWING:
        if name in inputs:
            value = {"input_ids": token, "attention_mask": 1}.get(name, 0)
            longer[name] = torch.cat(
                [inputs[name], torch.full((1, 1), value, dtype=inputs[name].dtype)], dim=1
            )
    return longer


def greedy(
    model: Any, inputs: Mapping[str, Any], references: ReferenceTable, beta: float, steps: int
) -> tuple[list[int], list[np.ndarray]]:
    """Tokens and edited logits of one row, by full passes without a cache, up to the end token."""
    strength = strengths_of(model, inputs, references)[0]
    tokens, shown = [], []
    for _ in range(steps):
        with torch.no_grad():
            raw = model(**inputs, use_cache=False).logits[0, -1].float().numpy()
        after = edited(raw, strength, beta)
        shown.append(after)
        tokens.append(int(after.argmax()))
        if tokens[-1] == model.generation_config.eos_token_id:
            break
        inputs = extended(inputs, tokens[-1])
    return tokens, shown


@contextmanager
def hand_edited(model: Any, rows: Sequence[np.ndarray], beta: float) -> Iterator[None]:
    """Patch the forward so that the last column's logits are edited; beams of a row share its strengths."""
    speaker = parts(model)[2]
    original = speaker.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        count = output.logits.shape[0]
        for row in range(count):
            strength = rows[row * len(rows) // count]
            after = edited(output.logits[row, -1].float().numpy(), strength, beta)
            output.logits[row, -1] = torch.from_numpy(after).float()
        return output

    forward.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    speaker.forward = forward
    try:
        yield
    finally:
        del speaker.forward
