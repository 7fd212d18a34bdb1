"""mlx-vlm as an engine: it generates one row at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from reweigh.engines.answer import Answer, decode
from reweigh.engines.mlx.hooks import MlxHooks
from reweigh.engines.mlx.model import MlxAnatomy, to_torch
from reweigh.engines.run import Run
from reweigh.errors import InputError
from reweigh.families.processor import chat_template_of, tokenizer_of
from reweigh.families.prompts import check_prompt, render
from reweigh.tables.key import ModelKey
from reweigh.text import Template


@dataclass(frozen=True)
class MlxEngine:
    """A loaded mlx-vlm model and its processor; see ``Engine``."""

    anatomy: MlxAnatomy
    processor: Any

    def key(self) -> ModelKey:
        """Identify the loaded model."""
        return self.anatomy.identify(self.processor)

    def inputs(
        self, pictures: Sequence[Any], prompts: Sequence[str], *, template: Template | None = None
    ) -> dict[str, Any]:
        """Build the arguments of mlx-vlm's ``generate`` for one row, or ``rows`` of them for ``answers``."""
        rows = [self._row(*one, template) for one in zip(pictures, prompts, strict=True)]
        return rows[0] if len(rows) == 1 else {"rows": rows}

    def _row(self, picture: Any, prompt: str, template: Template | None) -> dict[str, Any]:
        anatomy, processor = self.anatomy, self.processor
        shown = SimpleNamespace(config=anatomy.config)
        check_prompt(shown, processor, prompt)
        voice = processor if chat_template_of(processor) else tokenizer_of(processor)
        text = render(shown, voice, prompt, picture is not None, template)
        nested = anatomy.family.nested_images
        images = {} if picture is None else {"images": [[picture]] if nested else [picture]}
        made = dict(processor(text=[text], **images))
        if picture is not None and set(anatomy.image_tokens).isdisjoint(
            to_torch(mx.array(made["input_ids"])).flatten().tolist()
        ):
            raise InputError(f"the prompt has no place for the image: {text!r} has no image placeholder")
        arrays = {
            name: value if isinstance(value, mx.array) else mx.array(value) for name, value in made.items()
        }
        mx.eval(arrays)  # evaluate now: another thread, with another stream, may use them
        return {"mask": arrays.pop("attention_mask", None), **arrays}

    def passes(self, run: Run) -> AbstractContextManager[Run]:
        """Show every pass of this thread or task inside the block to the run's decoder."""
        return MlxHooks.of(self.anatomy).passes(run)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``mlx_vlm.generate``."""
        from mlx_vlm import generate

        return generate(self.anatomy.model, self.processor, *args, **kwargs)

    def answers(self, inputs: Mapping[str, Any], *, seed: int | None = None, **options: Any) -> list[Answer]:
        """Generate an answer to each row, one after the other; the options are those of transformers' ``generate``."""
        if "max_new_tokens" in options:
            options["max_tokens"] = options.pop("max_new_tokens")
        if not options.pop("do_sample", False):
            options["temperature"] = 0.0
        return [self._answer(row, seed, options) for row in inputs.get("rows", [inputs])]

    def _answer(self, row: Mapping[str, Any], seed: int | None, options: Mapping[str, Any]) -> Answer:
        if seed is not None:
            mx.random.seed(seed)
        said = self.generate("", **row, **options)
        tokens = tuple(said.token_ids or ())
        text = decode(tokenizer_of(self.processor), tokens)
        return Answer(text.strip(), tokens, said.prompt_tokens)
