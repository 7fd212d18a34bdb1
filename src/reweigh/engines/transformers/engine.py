"""Transformers as an engine: hooks on a loaded model, so that its own ``generate`` follows a decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from reweigh.engines.answer import Answer
from reweigh.engines.run import Run
from reweigh.engines.transformers.answers import end_tokens, read_answers
from reweigh.engines.transformers.manager import HookManager
from reweigh.families.anatomy import Anatomy
from reweigh.families.prompts import build_inputs
from reweigh.tables.key import ModelKey
from reweigh.text import Template

GREEDY = {"temperature": None, "top_p": None, "top_k": None}
"""Sampling settings of a checkpoint, which greedy decoding would only warn about."""


@dataclass(frozen=True)
class TransformersEngine:
    """A loaded transformers model and its processor; see ``Engine``."""

    anatomy: Anatomy
    processor: Any

    def key(self) -> ModelKey:
        """Identify the loaded model."""
        return self.anatomy.identify(self.processor)

    def inputs(
        self, pictures: Sequence[Any], prompts: Sequence[str], *, template: Template | None = None
    ) -> dict[str, Any]:
        """Build the model's inputs, one row for each picture and prompt."""
        return build_inputs(self.anatomy.model, self.processor, pictures, prompts, template=template)

    def passes(self, run: Run) -> AbstractContextManager[Run]:
        """Show every pass of this thread or task inside the block to the run's decoder."""
        return HookManager.of(self.anatomy).passes(run)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``model.generate``."""
        return self.anatomy.model.generate(*args, **kwargs)

    def answers(self, inputs: Mapping[str, Any], *, seed: int | None = None, **options: Any) -> list[Answer]:
        """Generate an answer to each row of ``inputs``."""
        if not options.get("do_sample"):
            options = {**GREEDY, **options}
        if seed is not None:
            torch.manual_seed(seed)
        with torch.no_grad():
            output = self.anatomy.model.generate(**inputs, **options)
        return read_answers(self.processor, output, inputs, end_tokens(self.anatomy.language_model))
