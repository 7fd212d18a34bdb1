"""ReWEIGH tied to an mlx-vlm model: the session of ``reweigh.attach`` on MLX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.decoding.attach import ReweighSession
from reweigh.engines.mlx.generation import answer_of, build_row
from reweigh.engines.mlx.hooks import MlxHooks
from reweigh.errors import UnsupportedError
from reweigh.images import read_image
from reweigh.runtime.answer import Answer
from reweigh.text import Template


class MlxSession(ReweighSession):
    """ReWEIGH tied to one mlx-vlm model. Made by ``attach``."""

    hooks = MlxHooks

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``mlx_vlm.generate`` with this decoder, in a request of its own."""
        from mlx_vlm import generate

        with self.request():
            return generate(self.model, self.processor, *args, **kwargs)

    def prepare(
        self, pictures: Sequence[Any], prompts: Sequence[str], *, template: Template | None = None
    ) -> dict[str, Any]:
        """Build the arguments of mlx-vlm's ``generate`` for one picture, or none, and a prompt."""
        if len(pictures) != 1 or len(prompts) != 1:
            raise UnsupportedError("one prompt at a time on MLX", hint="prepare each row by itself")
        anatomy: Any = self.decoder.anatomy
        return build_row(anatomy, self.processor, pictures[0], prompts[0], template=template)

    def answer(
        self,
        images: Sequence[Any],
        prompts: Sequence[str],
        *,
        template: Template | None = None,
        seed: int | None = None,
        **generate: Any,
    ) -> list[Answer]:
        """Answer one prompt about each picture, one after the other."""
        rows = [
            self.prepare([read_image(one)], [text], template=template)
            for one, text in zip(images, prompts, strict=True)
        ]
        return [answer for row in rows for answer in self.respond(row, seed=seed, **generate)]

    def respond(self, inputs: Mapping[str, Any], *, seed: int | None = None, **generate: Any) -> list[Answer]:
        """Answer prepared inputs: greedy unless told otherwise."""
        options = {"do_sample": False, **generate}
        with self.request():
            return [answer_of(self.model, self.processor, inputs, seed=seed, **options)]
