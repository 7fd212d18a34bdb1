"""CODE (Kim et al., NeurIPS 2024): contrast with the model's own description in place of the image.

y = (2 - D) a - (1 - D) r on the tokens with p >= D max p, where D is the bounded divergence of the two passes.

The branch is a text-only prompt. As in the official program the description is tokenised with special tokens, so that a
BOS may stand inside the prompt. The official program takes one image; here given descriptions may replace several.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from reweigh.engines.transformers.arguments import prompt_ids
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.contrast import Contrast
from reweigh.rivals.tools.description import Describer
from reweigh.rivals.tools.inputs import image_spans, padded, rows_of
from reweigh.rivals.tools.options import fits
from reweigh.rivals.tools.rules import bounded_contrast
from reweigh.runtime.decoder import Request, in_range
from reweigh.runtime.forward import Pass

QUESTION = (
    "Provide a detailed description of the image, covering all visible elements and their interactions, "
    "so as to thoroughly answer any potential questions about the image."
)
"""The question of the paper."""

Descriptions = str | Sequence[str | Sequence[str]]
"""One text for all rows, or for each row a text, or one for each of its images."""


class CodeRequest(Request):
    """A caller's request, with the descriptions to use."""

    def __init__(self, decoder: CODE, descriptions: Descriptions | None) -> None:
        super().__init__(decoder)
        self.descriptions = descriptions


class CODE(Contrast):
    """Contrast with a description.

    Args:
        power: Exponent of the divergence: ``cd_alpha`` on the official command line, where it defaults to 0.7.
        descriptions: A description for each row of the prompt, or one for all, instead of the model's own; a list of
            them for a row of several images. Also an option of a request.
        question: What the model is asked for its own description.
        description_tokens: Most tokens of it.
        template: Used instead of the processor's chat template for the question.
    """

    title = "CODE"
    grid = (("power", (0.2, 0.35, 0.5, 0.7, 1.0, 1.4)),)

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        power: float = 0.7,
        descriptions: Descriptions | None = None,
        question: str = QUESTION,
        description_tokens: int = 512,
        template: str | None = None,
    ) -> None:
        super().__init__(anatomy, processor, alpha=1.0, beta=0.0)
        if processor is None:
            raise InputError(
                "CODE puts words in place of the image", hint='decoder("code", model, processor)'
            )
        self.power = in_range("power", power, 0)
        self.descriptions = descriptions
        length = int(in_range("description_tokens", description_tokens, 1))
        self._describer = functools.partial(Describer, anatomy, processor, question, length, template)
        self.describer = None if descriptions is not None else self._describer()

    def request(
        self,
        outer: Request | None = None,
        *,
        descriptions: Descriptions | None = None,
        **options: Any,
    ) -> Request:
        """Settings of one caller: descriptions for the rows of its prompts."""
        super().request(outer, **options)
        if descriptions is not None and not fits(descriptions, Descriptions):
            raise InputError(
                f"descriptions are {descriptions!r:.80}, but must be a text or a list of texts",
                hint='one text for all rows, or one for each: descriptions=["A dog.", "A cat."]',
            )
        around = outer.descriptions if isinstance(outer, CodeRequest) else self.descriptions
        return CodeRequest(self, around if descriptions is None else descriptions)

    def branch_inputs(self, forward: Pass) -> dict[str, Any]:
        """The prompt with a description where the image was; all else of it stays, the image's tags too."""
        tokenizer, rows = self.processor.tokenizer, []
        for number, (row, given) in enumerate(
            zip(rows_of(forward.inputs), self._texts(forward), strict=True)
        ):
            spans = image_spans(self.anatomy, forward.inputs, forward.prompts[number])
            texts = [given] if isinstance(given, str) else list(given)
            if spans and len(texts) != len(spans):
                raise InputError(
                    f"row {number} shows {len(spans)} images, but {len(texts)} descriptions are given for it",
                    hint='give one for each image: descriptions=[["A dog.", "A cat."]]',
                )
            for (first, last), text in reversed(list(zip(spans, texts, strict=False))):
                row[first : last + 1] = tokenizer(text)["input_ids"]
            rows.append(row)
        return padded(rows, prompt_ids(forward.inputs).device)

    def _texts(self, forward: Pass) -> Sequence[str | Sequence[str]]:
        given = getattr(forward.request, "descriptions", None)
        count = len(forward.prompts)
        if given is None:
            self.describer = self.describer or self._describer()
            return self.describer.describe(forward)
        texts = [given] * count if isinstance(given, str) else list(given)
        if len(texts) != count:
            raise InputError(
                f"{len(texts)} descriptions were given for {count} rows", hint="give one for each row"
            )
        return texts

    def edit(self, forward: Pass) -> Tensor | None:
        """Contrast the last columns of rows that have an image, each with its own weight and cut."""
        if not forward.has_image:
            return None
        reference = self.reference(forward)
        if reference is None:
            return None
        main = forward.logits[:, -reference.shape[1] :].float()
        return forward.with_last(bounded_contrast(main, reference.float(), self.power), forward.image_rows())
