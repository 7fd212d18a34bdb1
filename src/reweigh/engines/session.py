"""A decoder tied to one model. Inside its block the model's own ``generate`` follows the decoder.

    session = reweigh.decoder("vcd", model, processor)
    with session:                      # or: with session.using(...) as run:
        model.generate(**inputs)
    session.generate(**inputs)         # the same for one call

A block belongs to the thread or task that opened it. Any other thread or task, and the same one outside the block, uses the
base model. Blocks of one model do not nest: what belongs together is set at once, ``using(beta=0.5, trace=True)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.engines.answer import Answer
from reweigh.engines.base import Decoder, Engine
from reweigh.engines.opening import engine_of
from reweigh.engines.run import Run, active
from reweigh.errors import InputError, ReweighError
from reweigh.families.prompts import DESCRIBE
from reweigh.images import read_image
from reweigh.text import Template

if TYPE_CHECKING:
    from typing import Self

    from PIL.Image import Image

Source = str | Path | bytes | Any
"""A picture: a path, encoded bytes or a PIL image."""


class Session:
    """A decoder tied to one model; outside its blocks it changes nothing."""

    def __init__(self, engine: Engine, decoder: Decoder) -> None:
        self.engine = engine
        self.decoder: Any = decoder

    @property
    def model(self) -> Any:
        """The model."""
        return self.engine.anatomy.model

    @property
    def processor(self) -> Any:
        """Its processor."""
        return self.engine.processor

    def using(self, **options: Any) -> AbstractContextManager[Run]:
        """Decode inside a block with options of its own."""
        return self.engine.passes(self.decoder.run(**options))

    def __enter__(self) -> Self:
        block = self.using()
        block.__enter__().block = block
        return self

    def __exit__(self, *exc_info: Any) -> None:
        run = active(self.model)
        if run is None or run.decoder is not self.decoder or run.block is None:
            raise ReweighError(
                "this `with` block was not entered in this thread or task",
                hint="leave it where it was entered; close a generator in the task that reads it",
            )
        block, run.block = run.block, None  # a cycle would keep the model until garbage is collected
        block.__exit__(*exc_info)

    @contextmanager
    def running(self) -> Iterator[Run]:
        """Use the run that is open here, or open one for this call."""
        run = active(self.model)
        if run is not None and run.decoder is self.decoder:
            yield run
            return
        with self.using() as run:
            yield run

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model's own ``generate`` with this decoder."""
        with self.running():
            return self.engine.generate(*args, **kwargs)

    def describe(
        self,
        image: Source | Sequence[Source],
        prompt: str | Sequence[str] = DESCRIBE,
        *,
        max_new_tokens: int = 512,
        template: Template | None = None,
        **generate: Any,
    ) -> Any:
        """Describe a picture, or a list of pictures in one batch.

        Greedy unless told otherwise, here or by what the method itself needs (beams, sampling).

        Returns:
            A text, or a list of texts for a list of pictures.
        """
        many = isinstance(image, list | tuple)
        images: list[Any] = list(image) if isinstance(image, list | tuple) else [image]
        prompts = [prompt] * len(images) if isinstance(prompt, str) else list(prompt)
        options = {"max_new_tokens": max_new_tokens, "template": template, **generate}
        texts = [answer.text for answer in self.answer(images, prompts, **options)]
        return texts if many else texts[0]

    def answer(
        self,
        images: Sequence[Source],
        prompts: Sequence[str],
        *,
        template: Template | None = None,
        seed: int | None = None,
        **generate: Any,
    ) -> list[Answer]:
        """Answer one prompt about each picture, in one batch; ``generate`` gets the other options."""
        pictures = [read_image(image) for image in images]
        inputs = self.prepare(pictures, prompts, template=template)
        return self.respond(inputs, seed=seed, **generate)

    def prepare(
        self, pictures: Sequence[Image | None], prompts: Sequence[str], *, template: Template | None = None
    ) -> dict[str, Any]:
        """Build the model's inputs for pictures and prompts."""
        if self.processor is None:
            raise InputError(
                "describing a picture needs a processor, and none was found beside the model",
                hint="pass it: attach(model, processor, ...)",
            )
        return self.engine.inputs(pictures, prompts, template=template)

    def respond(self, inputs: Mapping[str, Any], *, seed: int | None = None, **generate: Any) -> list[Answer]:
        """Answer prepared inputs: greedy unless told otherwise, here or by what the method itself needs."""
        options = {"do_sample": False, **self.decoder.generation, **generate}
        with self.running():
            return self.engine.answers(inputs, seed=seed, **options)

    def record(self) -> dict[str, Any]:
        """Return what a run records about the decoder."""
        return dict(self.decoder.record())


def tie(decoder: Decoder) -> Any:
    """Tie a decoder to its model, in a session of its own kind if it has one."""
    return (decoder.session or Session)(engine_of(decoder.anatomy, decoder.processor), decoder)
