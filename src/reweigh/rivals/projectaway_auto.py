"""ProjectAway-auto: the words to take out are those of a first description that the image is least sure of.

Ours, not the authors': their program is given the words, from the ground truth. An answer costs a description, one pass
that reads the internal confidence of its words, and the answer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.tap import Tap
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.projectaway import ProjectAway
from reweigh.rivals.tools.branch import Runner
from reweigh.rivals.tools.confidence import confidence, word_pieces
from reweigh.rivals.tools.description import write_apart
from reweigh.rivals.tools.entities import entity_test, may_be_entity
from reweigh.rivals.tools.inputs import forwardable
from reweigh.runtime.decoder import UpcomingPass, in_range


class ProjectAwayAuto(ProjectAway):
    """ProjectAway on the words of the model's own answer whose internal confidence is below ``threshold``.

    Args:
        threshold: Internal confidence below which a word is taken out; 0 takes none.
        is_entity: Whether a word may be taken out, or the words that may, or a file of them; every word but function
            words if not given.
        max_new_tokens: Longest first description.
        others: Options of ``projectaway`` besides ``erase``.
    """

    title = "ProjectAway-auto (threshold τ)"

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        threshold: float = 0.1,
        is_entity: Callable[[str], bool] | Sequence[str] | str | Path = may_be_entity,
        max_new_tokens: int = 512,
        weight: float = 1.5,
        image_layer: int = 2,
        text_layer: int = 1,
        embeddings: bool = False,
    ) -> None:
        options = {"image_layer": image_layer, "text_layer": text_layer, "embeddings": embeddings}
        super().__init__(anatomy, processor, erase=(), weight=weight, **options)  # type: ignore[arg-type]
        self.threshold = in_range("threshold", threshold, 0, 1)
        self.is_entity = entity_test(is_entity)
        self.max_new_tokens = int(in_range("max_new_tokens", max_new_tokens, 1))

    def targets(self, upcoming: UpcomingPass) -> list[list[Tensor]]:
        """Describe the image, and find the words of the description that it is not sure of."""
        memory: dict[Any, Any] = {} if upcoming.trail is None else upcoming.trail.memory
        key = "erase", upcoming.start
        if key not in memory:  # without a cache every step reads the image again
            memory[key] = self.weak_words(upcoming) if self.threshold else [[]] * len(upcoming.columns)
        return [[self.word_state(word) for word in words] for words in memory[key]]

    @torch.no_grad()
    def weak_words(self, upcoming: UpcomingPass) -> list[list[str]]:
        """For each prompt row the words that are taken out of its image."""
        if upcoming.start:
            raise UnsupportedError(
                "a continued conversation shows a new image, which cannot be described by itself",
                hint="start the conversation anew with all its images",
            )
        inputs = forwardable(self.anatomy, upcoming.inputs)
        said = write_apart(self.anatomy, self.processor, inputs, self.max_new_tokens)
        texts = self.processor.batch_decode([one.tokens for one in said], skip_special_tokens=True)
        found = [self._entities(text) for text in texts]
        tokens = sorted({token for words in found for own in words.values() for token in own})
        if not tokens:
            return [[] for _ in found]
        with Tap.of(self.anatomy).aside(), Runner(self.anatomy).apart():
            read = confidence(self.anatomy.model, inputs, tokens)
        return [
            [word for word, own in words.items() if row is not None and row.of(own) < self.threshold]
            for words, row in zip(found, read, strict=True)
        ]

    def _entities(self, text: str) -> dict[str, tuple[int, ...]]:
        """The words of a text that may be taken out, with their tokens."""
        if not text.strip():
            return {}
        pieces = [(text[start:end], own) for start, end, own in word_pieces(self.processor, text)]
        return {word: own for word, own in pieces if self.is_entity(word)}
