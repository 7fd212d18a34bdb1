"""ICD, instruction contrastive decoding (Wang et al., ACL Findings 2024): contrast with a disturbed instruction.

y = (1 + alpha) a - alpha r on the tokens with a >= max a + ln beta; branch r sees the same image and disturbing words before
the question, in the Q-Former's text too where there is one.

Written from the paper and from the copy in SID's program, which has several disturbing sentences; here one is used. Not
the ICD that fine-tunes a weak model.
"""

from __future__ import annotations

from typing import Any

from reweigh.engines.transformers.arguments import TOKEN_TYPES
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.contrast import Contrast
from reweigh.rivals.tools.inputs import forwardable, image_tags, insert, padded, pixels, rows_of, token_kinds
from reweigh.runtime.decoder import SAMPLING
from reweigh.runtime.forward import Pass

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
        if processor is None:
            raise InputError(
                "ICD writes words of its own into the prompt", hint='decoder("icd", model, processor)'
            )
        if not disturbance.strip():
            raise InputError("the disturbance is empty", hint="give words, or use another decoder")
        self.disturbance = disturbance.strip() + " "

    def branch_inputs(self, forward: Pass) -> dict[str, Any]:
        """The main prompt with the disturbance before each question."""
        inputs = forwardable(self.anatomy, forward.inputs)
        pixels(forward.inputs)
        tokenizer = self.processor.tokenizer
        words = tokenizer(self.disturbance, add_special_tokens=False)["input_ids"]
        rows, device = rows_of(forward.inputs), inputs["input_ids"].device
        image = set(self.anatomy.image_tokens)
        after = [max((i + 1 for i, token in enumerate(row) if token in image), default=0) for row in rows]
        tags = image_tags(self.anatomy, self.processor)
        longer = [
            insert(row, words, tokenizer, after=start, tags=tags)
            for row, start in zip(rows, after, strict=True)
        ]
        inputs |= padded(longer, device)
        for name in TOKEN_TYPES:
            if name in inputs:
                inputs[name] = token_kinds(self.anatomy, inputs["input_ids"])
        if "qformer_input_ids" in inputs:
            inputs |= self._qformer(inputs)
        return inputs

    def _qformer(self, inputs: dict[str, Any]) -> dict[str, Any]:
        tokenizer = self.processor.qformer_tokenizer
        words = tokenizer(self.disturbance, add_special_tokens=False)["input_ids"]
        given = {
            "input_ids": inputs["qformer_input_ids"],
            "attention_mask": inputs.get("qformer_attention_mask"),
        }
        made = padded(
            [insert(row, words, tokenizer) for row in rows_of(given)], inputs["qformer_input_ids"].device
        )
        return {"qformer_input_ids": made["input_ids"], "qformer_attention_mask": made["attention_mask"]}
