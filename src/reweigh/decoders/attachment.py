"""A decoder tied to one model: a context in which the model's own ``generate`` follows the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reweigh.decoders.base import Decoder
from reweigh.families.prompts import DESCRIBE
from reweigh.intervene.attach import describe
from reweigh.measure.tap import Tap

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image


class Attachment:
    """Made by ``reweigh.decoder``; the same shape as the attachment of ``reweigh.attach``."""

    def __init__(self, model: Any, processor: Any, decoder: Decoder) -> None:
        self.model = model
        self.processor = processor
        self.decoder = decoder
        self._tap = Tap(decoder.anatomy, decoder)

    def __enter__(self) -> Attachment:
        self._tap.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._tap.__exit__(*exc_info)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """``model.generate`` with this decoder."""
        with self:
            return self.model.generate(*args, **kwargs)

    def describe(
        self,
        image: str | Path | bytes | Image | Sequence[str | Path | bytes | Image],
        prompt: str | Sequence[str] = DESCRIBE,
        *,
        max_new_tokens: int = 512,
        template: str | None = None,
        **generate: Any,
    ) -> Any:
        """Describe a picture, or a list of pictures in one batch.

        Greedy unless told otherwise, here or by what the method itself needs (beams, sampling).

        Returns:
            A text, or a list of texts for a list of pictures.
        """
        options = {**self.decoder.generation, **generate}
        with self:
            return describe(
                self.model,
                self.processor,
                image,
                prompt,
                max_new_tokens=max_new_tokens,
                template=template,
                **options,
            )
