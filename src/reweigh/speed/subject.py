"""The model whose whole generation is timed, with one prompt and ReWEIGH attached."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reweigh.decoding import ReweighSession
from reweigh.engines.transformers.measure import measure
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.method.evidence import Evidence


@dataclass(frozen=True)
class Subject:
    """A model with one prompt, and ReWEIGH for it."""

    name: str
    model: Any
    processor: Any
    inputs: dict[str, Any]
    reweigh: ReweighSession
    new_tokens: int

    def __post_init__(self) -> None:
        # every variant writes the same number of tokens: no token ends a generation
        self.model.generation_config.eos_token_id = None

    @cached_property
    def evidence(self) -> list[Evidence | None]:
        """The evidence of the prompt, measured once, for generations with cached evidence."""
        deployed = self.reweigh.decoder.deployed
        return measure(
            self.model,
            self.inputs,
            layers=[deployed.table.layer],
            tokens=deployed.table.tokens.tolist(),
            dtype=deployed.lens.mode,
            chunk=deployed.lens.chunk,
        )

    @cached_property
    def parameters(self) -> int:
        """Weights of the model."""
        return sum(weight.numel() for weight in self.model.parameters())

    def __str__(self) -> str:
        positions = int(
            sum((self.inputs["input_ids"] == i).sum() for i in self.reweigh.decoder.anatomy.image_tokens)
        )
        return f"{self.name} {self.parameters / 1e6:,.0f} M parameters, {positions} visual, {self.new_tokens} new tokens"


def describing(name: str, session: ReweighSession, picture: Any, new_tokens: int) -> Subject:
    """Let the attached model describe one picture."""
    inputs = build_inputs(session.model, session.processor, [picture], [DESCRIBE])
    return Subject(name, session.model, session.processor, inputs, session, new_tokens)
