"""The unmodified model's greedy answers with the candidates of every step: for calibration, and for studies.

Calibration keeps the evidence of every image. A study's function is handed the residual states of the visual positions as
soon as they are there, so that it reads what it wants of them and nothing large is kept. ``whole_words`` has the model
complete tokens that may be pieces of a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.engines.base import Pass
from reweigh.engines.reader import Reader
from reweigh.engines.rows import Row
from reweigh.engines.transformers.answers import end_tokens
from reweigh.engines.transformers.arguments import followed_by
from reweigh.engines.transformers.manager import watching
from reweigh.errors import CalibrationError, InputError, ReweighError
from reweigh.families.anatomy import Anatomy
from reweigh.families.processor import tokenizer_of
from reweigh.method.edit import Candidates, candidates
from reweigh.tables.observations import ImageObservations, count_candidates


class StepObserver:
    """Reads the evidence of the passes it sees, and keeps every step's candidates."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.rows: list[Row] = []
        self.steps: list[tuple[Tensor, Tensor]] = []

    def see(self, forward: Pass) -> None:
        """Read the images that are new in a pass, and keep its candidates."""
        self.reader.gather(forward)
        self.rows = forward.rows
        chosen = candidates(forward.logits[:, -1])
        self.steps.append((chosen.ids, chosen.keep))

    def observations(self, keys: Sequence[str], lengths: Sequence[int]) -> list[ImageObservations]:
        """Return the observations of each row, from the candidates of as many steps as its answer is long."""
        ids, keep = (torch.stack(part, dim=1).cpu().numpy() for part in zip(*self.steps, strict=True))
        rows = []
        for row, (key, length, shown) in enumerate(zip(keys, lengths, self.rows, strict=True)):
            chosen, kept = ids[row, :length], keep[row, :length]
            token, count = count_candidates(
                chosen, kept & (chosen < self.reader.lens.rows)
            )  # else no evidence
            found = [self.reader.evidence(shown, name) for name in self.reader.readouts]
            values = [one.values.cpu().numpy()[:, token] for one in found if one is not None]
            if not values:
                raise InputError(
                    "the calibration prompt contains no image",
                    hint="put the image placeholder in the template",
                )
            rows.append(ImageObservations(key, token, count, *values))
        return rows


def observe(
    anatomy: Anatomy, reader: Reader, keys: Sequence[str], inputs: Mapping[str, Any], *, max_new_tokens: int
) -> list[ImageObservations]:
    """Decode one batch greedily and turn it into observations, one per row."""
    observer = StepObserver(reader)
    with watching(anatomy, reader.layers, observer.see):
        sequences = generate_greedily(anatomy.model, inputs, max_new_tokens=max_new_tokens)
    if not observer.steps:
        raise CalibrationError("generate made no forward pass")
    generated = sequences[:, -len(observer.steps) :]
    return observer.observations(keys, answer_lengths(generated, end_tokens(anatomy.language_model)))


def generate_greedily(model: Any, inputs: Mapping[str, Any], *, max_new_tokens: int) -> Tensor:
    """Generate a model's greedy answers, prompt included."""
    with torch.no_grad():
        output = model.generate(
            **inputs,
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
            temperature=None,
            top_p=None,
            top_k=None,
            max_new_tokens=max_new_tokens,
            prefill_chunk_size=None,  # each pass that is noted must be a decoding step
        )
    sequences: Tensor = getattr(output, "sequences", output)
    return sequences


def answer_lengths(generated: Tensor, ends: Sequence[int]) -> list[int]:
    """Count the steps of each row up to and including its end-of-sequence token."""
    stopped = torch.isin(generated, torch.tensor(ends, dtype=generated.dtype, device=generated.device))
    first = torch.where(stopped.any(1), stopped.int().argmax(1) + 1, generated.shape[1])
    return [int(length) for length in first]


Read = Callable[[int, Tensor], Any]
"""Turns the visual states (P, d) of a prompt row into what a study keeps."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One answer and how it came about; T steps, the one that ended the answer included.

    Attributes:
        tokens: (T,) emitted ids.
        probability: (T,) their probability, the softmax of the raw logits in float64.
        candidates: For each step the candidate ids, best first.
        logits: For each step their raw logits.
        reading: What was made of the visual states.
    """

    tokens: NDArray[np.int64]
    probability: NDArray[np.float64]
    candidates: list[NDArray[np.int64]]
    logits: list[NDArray[np.float32]]
    reading: Any


class _Follower:
    """Has visual states read, keeps candidates and the probability of what was emitted."""

    def __init__(self, layer: int, read: Read) -> None:
        self.layer = layer
        self.read = read
        self.readings: list[Any] = []
        self.steps: list[Candidates] = []
        self.emitted: list[Tensor] = []
        self._before: Tensor | None = None

    def see(self, forward: Pass) -> None:
        """Have new images read, and keep the pass's candidates."""
        new = forward.new()
        if new:
            if self.readings or len(new) < len(forward.rows):
                raise InputError(
                    "every row needs its image in the first pass",
                    hint="ask about one image for each row, its placeholder in the prompt",
                )
            states = forward.states[self.layer]
            self.readings = [self.read(row, states[row, columns]) for row, _, columns in new]
        if self._before is not None:
            self.note(forward.arguments["input_ids"][:, -1])
        raw = forward.logits[:, -1]
        self.steps.append(candidates(raw))
        self._before = raw

    def note(self, chosen: Tensor) -> None:
        """Keep the probability of what was emitted after the latest pass."""
        if self._before is None:
            raise ReweighError("generate made no forward pass")
        raw = self._before.cpu().double() if self._before.device.type == "mps" else self._before.double()
        probability = torch.softmax(raw, dim=1)
        self.emitted.append(probability.gather(1, chosen.to(probability.device)[:, None])[:, 0])


def follow(
    anatomy: Anatomy, layer: int, inputs: Mapping[str, Any], read: Read, *, max_new_tokens: int
) -> list[Trajectory]:
    """Decode one batch greedily and keep the trajectory of each row."""
    follower = _Follower(layer, read)
    with watching(anatomy, [layer], follower.see):
        sequences = generate_greedily(anatomy.model, inputs, max_new_tokens=max_new_tokens)
    if not follower.readings:
        raise InputError("the prompt contains no image", hint="put the image placeholder in the template")
    follower.note(sequences[:, -1])
    generated = sequences[:, -len(follower.steps) :]
    probability = torch.stack(follower.emitted, dim=1).cpu().numpy()
    lengths = answer_lengths(generated, end_tokens(anatomy.language_model))
    found = []
    for row, length in enumerate(lengths):
        steps = follower.steps[:length]
        kept = [step.keep[row].cpu().numpy() for step in steps]
        found.append(
            Trajectory(
                generated[row, :length].cpu().numpy().astype(np.int64),
                probability[row, :length],
                [step.ids[row].cpu().numpy()[keep] for step, keep in zip(steps, kept, strict=True)],
                [step.logits[row].cpu().numpy()[keep] for step, keep in zip(steps, kept, strict=True)],
                follower.readings[row],
            )
        )
    return found


LONGEST = 5
"""Further tokens after which a word is taken to be whole."""


def whole_words(
    model: Any, processor: Any, inputs: Mapping[str, Any], said: Sequence[int], tokens: Sequence[int]
) -> dict[int, str]:
    """Complete the word that each token begins or continues after ``said``, as the unedited model would.

    One short generation for each token; punctuation needs none and is left out.
    """
    tokenizer = tokenizer_of(processor)
    before = tokenizer.decode(list(said), skip_special_tokens=True)
    found = {}
    for token in tokens:
        text = tokenizer.decode([*said, token], skip_special_tokens=True)
        if not text[len(before) :].strip()[:1].isalpha():
            continue
        fed = torch.tensor([[*said, token]], device=inputs["input_ids"].device)
        longer = followed_by(inputs, fed)
        output = generate_greedily(model, longer, max_new_tokens=LONGEST)
        more = output[0, longer["input_ids"].shape[1] :].tolist()
        text = tokenizer.decode([*said, token, *more], skip_special_tokens=True)
        found[token] = word_at(text, len(before))
    return found


def word_at(text: str, place: int) -> str:
    """Return the word that covers a place of a text, or the next one after it.

    >>> word_at("a fire hydrant", 3), word_at("a fire hydrant", 1)
    ('fire', 'fire')
    """
    while place < len(text) and text[place].isspace():
        place += 1
    start = end = place
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return text[start:end]
