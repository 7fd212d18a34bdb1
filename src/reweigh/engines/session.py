"""A decoder tied to one model. While a request of it is open, the model's own ``generate`` follows the decoder.

    session = reweigh.decoder("vcd", model, processor)
    with session:                      # or: with session.request(...) as request:
        model.generate(**inputs)
    model.generate(**inputs, custom_generate=session)  # the same for one call

A request belongs to the thread or task that opened it. Any other thread or task, and the same one outside the block,
uses the model as it is.

As ``custom_generate``, a session is called by transformers in place of its own loop, with inputs, processors and stopping
criteria prepared. It opens a request and runs the loop that transformers would have run. A callable is not handed everything
that ``generate`` was given (streamer, assistant model, the prompt before it was repeated for beams), so that is looked up in
the calling frame.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.engines.answer import Answer
from reweigh.engines.base import Decoder
from reweigh.engines.context import opened_around, outer_request
from reweigh.engines.transformers.answers import end_tokens, read_answers
from reweigh.engines.transformers.arguments import read_prompt
from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.images import read_image
from reweigh.text import Template

if TYPE_CHECKING:
    from typing import Self

    from PIL.Image import Image

    from reweigh.engines.context import OpenRequest

Source = str | Path | bytes | Any
"""A picture: a path, encoded bytes or a PIL image."""


class Session:
    """A decoder tied to one model; without an open request it changes nothing.

    Attributes:
        hooks: What shows the model's passes to open requests.
    """

    hooks: Any = HookManager

    def __init__(self, model: Any, processor: Any, decoder: Decoder) -> None:
        self.model = model
        self.processor = processor
        self.decoder: Any = decoder
        self._plain = RequestContext(decoder, {}, self.hooks)

    def request(self, **options: Any) -> AbstractContextManager[Any]:
        """Open a request with settings of its own; what is not given is taken from the request it is nested in.

        The result can be entered several times, in any thread or task; each time opens a new request.
        """
        return RequestContext(self.decoder, options, self.hooks)

    def using(self, **options: Any) -> AbstractContextManager[Any]:
        """Decode inside a block with settings of one's own; the future name of ``request``."""
        return self.request(**options)

    def __enter__(self) -> Self:
        self._plain.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._plain.__exit__(*exc_info)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``model.generate`` with this decoder, in a request of its own."""
        with self.request():
            return self.model.generate(*args, **kwargs)

    def __call__(
        self, model: Any, input_ids: Tensor, inputs_tensor: Tensor | None = None, **prepared: Any
    ) -> Any:
        """Decode for ``model.generate(**inputs, custom_generate=session)``, in place of transformers' own loop."""
        # inputs_tensor by name: transformers hands it only to callables that say they take it
        return decode_prepared(
            self.decoder, model, input_ids, sys._getframe(1), inputs_tensor=inputs_tensor, **prepared
        )

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
        return build_inputs(self.model, self.processor, pictures, prompts, template=template)

    def respond(self, inputs: Mapping[str, Any], *, seed: int | None = None, **generate: Any) -> list[Answer]:
        """Answer prepared inputs: greedy unless told otherwise, here or by what the method itself needs."""
        options: dict[str, Any] = {"do_sample": False, **self.decoder.generation, **generate}
        if not options["do_sample"]:
            options = {"temperature": None, "top_p": None, "top_k": None, **options}
        if seed is not None:
            torch.manual_seed(seed)
        with self.request(), torch.no_grad():
            output = self.model.generate(**inputs, **options)
        return read_answers(self.processor, output, inputs, end_tokens(self.decoder.anatomy.language_model))

    def record(self) -> dict[str, Any]:
        """Return what a run records about the decoder."""
        return dict(self.decoder.record())


def tie(decoder: Decoder, model: Any, processor: Any = None) -> Any:
    """Tie a decoder to a model, in a session of its own kind if it has one."""
    return (decoder.session or Session)(model, processor, decoder)


class RequestContext(AbstractContextManager[Any]):
    """Opens a request of a decoder each time it is entered, and closes the one that was opened there."""

    def __init__(self, decoder: Decoder, options: Mapping[str, Any], hooks: Any) -> None:
        # not the session: a cycle would keep the model's memory until garbage is collected
        self._decoder = decoder
        self._options = options
        self._hooks = hooks
        self._open: list[OpenRequest] = []

    def __enter__(self) -> Any:
        made = self._decoder.request(outer_request(self._decoder), **self._options)
        self._open.append(self._hooks.of(self._decoder.anatomy).open(made))
        return made

    def __exit__(self, *exc_info: object) -> None:
        anatomy = self._decoder.anatomy
        opened = next((one for one in opened_around(anatomy.model) if one in self._open), None)
        if opened is None and len(self._open) == 1:  # a generator that another task closes
            opened = self._open[0]
        if opened is None:
            raise ReweighError("this session is not open in this thread or task")
        self._open.remove(opened)
        self._hooks.of(anatomy).close(opened)


def decode_prepared(
    decoder: Decoder,
    model: Any,
    input_ids: Tensor,
    caller: FrameType,
    *,
    inputs_tensor: Tensor | None = None,
    **prepared: Any,
) -> Any:
    """Decode what ``generate`` prepared, edited by a decoder.

    Args:
        input_ids: The prompt, repeated for beams or several answers.
        caller: The frame of ``generate``.
        inputs_tensor: The prompt before it was repeated; assisted decoding asks for it.
        prepared: Processors, stopping criteria, generation settings, and the model's other inputs.
    """
    anatomy = decoder.anatomy
    if model is not anatomy.model:
        raise _other_model(decoder, model)
    given = _given(caller, model)
    settings = prepared["generation_config"]
    for name, value in decoder.generation.items():
        if name not in given and getattr(settings, name, None) != value:
            raise InputError(
                f"{decoder.name or type(decoder).__name__} decodes with {name}={value!r}, but generate was prepared "
                "without it",
                hint=f"add it: generate(..., {name}={value!r}, custom_generate=...)",
            )
    loop = decoder.loop or _own_loop(model, settings, given)
    prepared |= _not_handed_on(loop, {**given, "inputs_tensor": inputs_tensor})
    own_generate = type(model).generate.__get__(model)
    request = decoder.request(outer_request(decoder))
    prompt = read_prompt(anatomy, request, own_generate, (), given)
    return HookManager.of(anatomy).run(request, prompt, lambda: loop(model, input_ids, **prepared))


def _given(caller: FrameType, model: Any) -> dict[str, Any]:
    """Return the arguments of the ``generate`` call, by name."""
    names, _, keywords, found = inspect.getargvalues(caller)
    if caller.f_code.co_name != "generate" or found.get("self") is not model or keywords is None:
        raise InputError(
            "a session is not called directly", hint="model.generate(**inputs, custom_generate=session)"
        )
    given = {name: found[name] for name in names if name not in ("self", "custom_generate")}
    return {**{name: value for name, value in given.items() if value is not None}, **found[keywords]}


def _own_loop(model: Any, settings: Any, given: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the loop that transformers would have run for these settings."""
    from transformers.generation.utils import GENERATION_MODES_MAPPING

    mode = settings.get_generation_mode(given.get("assistant_model"))
    name = GENERATION_MODES_MAPPING[mode]
    if not hasattr(type(model), name):
        raise UnsupportedError(
            f"transformers moved {mode.value} out to {name}, so custom_generate cannot run it",
            hint="use greedy decoding, sampling, beams or assisted decoding",
        )
    loop: Callable[..., Any] = getattr(type(model), name)
    return loop


def _not_handed_on(loop: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a loop that transformers does not pass to a callable."""
    named = inspect.signature(loop).parameters
    names = ("streamer", "assistant_model", "synced_gpus", "inputs_tensor")
    return {name: given[name] for name in names if name in named and given.get(name) is not None}


def _other_model(decoder: Decoder, model: Any) -> Exception:
    if model is decoder.anatomy.language_model:
        return UnsupportedError(
            f"{type(decoder.anatomy.model).__name__}.generate hands embeddings on to {type(model).__name__}, which "
            "does not know where the image is",
            hint="use `with session:` around generate instead of custom_generate",
        )
    return InputError(
        f"this session belongs to another model, not to the {type(model).__name__} that called it",
        hint="attach to the model whose generate is called",
    )
