"""ICD, instruction contrastive decoding (Wang et al., ACL Findings 2024): contrast with a disturbed instruction.

y = (1 + alpha) a - alpha r on the tokens with a >= max a + ln beta; branch r sees the same image and disturbing words before
the question, in the Q-Former's text too where there is one.

Written from the paper and from the copy in SID's program, which has several disturbing sentences; here there is one. Not to
be confused with the ICD that fine-tunes a weak model.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from reweigh.rivals.tools import (
    SAMPLING,
    Anatomy,
    Contrast,
    InputError,
    Prompt,
    forwardable,
    image_tags,
    padded,
    require_processor,
    rows_of,
    span,
    with_ids,
)

DISTURBANCE = "You are a confused object detector."


class ICD(Contrast):
    """Contrast with a disturbed instruction.

    Args:
        alpha: Weight of the contrast.
        beta: Plausibility cut.
        disturbance: The words.
    """

    title = "ICD"
    grid = (("alpha", (0.5, 1.0, 2.0)), ("beta", (0.1, 0.3)))
    regime = SAMPLING

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.1,
        disturbance: str = DISTURBANCE,
    ) -> None:
        super().__init__(anatomy, processor, alpha=alpha, beta=beta)
        require_processor("icd", processor, "ICD writes words of its own into the prompt")
        if not disturbance.strip():
            raise InputError("the disturbance is empty", hint="pass some words, or use another decoder")
        self.disturbance = disturbance.strip() + " "

    def branch_inputs(self, prompt: Prompt) -> dict[str, Any]:
        """Insert the disturbance before each question."""
        tokenizer, image = self.processor.tokenizer, self.anatomy.image_tokens
        words = tokenizer(self.disturbance, add_special_tokens=False)["input_ids"]
        tags = image_tags(self.anatomy, self.processor)
        rows = []
        for row in rows_of(prompt.inputs):
            rows.append(insert(row, words, tokenizer, after=span(row, image)[1], tags=tags))
        inputs = with_ids(self.anatomy, forwardable(self.anatomy, prompt.inputs), rows)
        if "qformer_input_ids" in inputs:
            inputs |= self._qformer(inputs)
        return inputs

    def _qformer(self, inputs: dict[str, Any]) -> dict[str, Any]:
        tokenizer, ids = self.processor.qformer_tokenizer, inputs["qformer_input_ids"]
        words = tokenizer(self.disturbance, add_special_tokens=False)["input_ids"]
        given = {"input_ids": ids, "attention_mask": inputs.get("qformer_attention_mask")}
        made = padded([insert(row, words, tokenizer) for row in rows_of(given)], ids.device)
        return {f"qformer_{name}": value for name, value in made.items()}


def insert(
    row: Sequence[int], words: Sequence[int], tokenizer: Any, *, after: int = 0, tags: Collection[int] = ()
) -> list[int]:
    """Put words before the first token that is not a special token, an image tag or white space."""
    mute = {*tokenizer.all_special_ids, *tags}
    index = after
    while index < len(row) and (row[index] in mute or not tokenizer.decode([row[index]]).strip()):
        index += 1
    return [*row[:index], *words, *row[index:]]
