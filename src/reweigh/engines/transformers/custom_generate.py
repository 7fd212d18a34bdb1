"""A session as the ``custom_generate`` of transformers: ``model.generate(**inputs, custom_generate=rw)``.

transformers prepares inputs, processors and stopping criteria, then calls the session in place of its own loop. The
session opens a request and runs the loop that transformers would have run. A callable is not handed everything that
``generate`` was given (streamer, assistant model, the prompt before it was repeated for beams), so that is looked up in
the calling frame.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from torch import Tensor

from reweigh.engines.transformers.arguments import read_prompt
from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import InputError, UnsupportedError
from reweigh.runtime.context import outer_request
from reweigh.runtime.decoder import Decoder


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
    prompt = read_prompt(anatomy, own_generate, (), given)
    return HookManager.of(anatomy).run(
        decoder.request(outer_request(decoder)), prompt, lambda: loop(model, input_ids, **prepared)
    )


def _given(caller: FrameType, model: Any) -> dict[str, Any]:
    """What ``generate`` was called with, by name."""
    names, _, keywords, found = inspect.getargvalues(caller)
    if caller.f_code.co_name != "generate" or found.get("self") is not model or keywords is None:
        raise InputError(
            "a session is not called directly", hint="model.generate(**inputs, custom_generate=session)"
        )
    given = {name: found[name] for name in names if name not in ("self", "custom_generate")}
    return {**{name: value for name, value in given.items() if value is not None}, **found[keywords]}


def _own_loop(model: Any, settings: Any, given: Mapping[str, Any]) -> Callable[..., Any]:
    """The loop that transformers would have run for these settings."""
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
    """Arguments of a loop that transformers does not hand to a callable."""
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
        f"this session belongs to another model than the {type(model).__name__} that called it",
        hint="attach to the model whose generate is called",
    )
