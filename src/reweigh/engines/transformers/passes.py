"""What the hooks on a model do: show each forward pass to the decoder of the request that it belongs to.

A decoder gets a ``ForwardPass`` with the raw logits, the residual streams it reads and the trail of the sequence, and
returns new logits or ``None``. The trail travels on the key-value cache itself: it lives as long as the cached positions
do and survives a cache that is copied, cropped or reordered. Knows nothing of evidence, tables or any decoder.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.engines.transformers.arguments import bound, brings_image, check_arguments, rows_and_columns
from reweigh.engines.transformers.continuation import (
    find_trail,
    leave_trail,
    next_step,
    past_columns,
    trail_on,
)
from reweigh.engines.transformers.prompt import Prompt, missing_image, read_prompt
from reweigh.errors import ReweighError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.runtime.context import opened_on, paused
from reweigh.runtime.decoder import Decoder, ForwardPass, Request, UpcomingPass

COMPILED_APART = "attach to the compiled model, not to the one inside it"
NOTHING: frozenset[int] = frozenset()
PENDING = torch.empty(0)
"""Stands for the logits of a pass under way."""


class _Local(threading.local):
    """What is under way in one thread."""

    prompt: Prompt | None = None
    forward: ForwardPass | None = None
    outer_ids: Tensor | None = None


class Passes:
    """The forward passes of one model, as its hooks see them.

    Args:
        serving: Keeps a request open for as long as a generation needs it.

    Attributes:
        exits: The module behind each block that is read.
    """

    def __init__(
        self, anatomy: Anatomy, serving: Callable[[Request], AbstractContextManager[Request]]
    ) -> None:
        self.anatomy = anatomy
        self.exits: dict[int, nn.Module] = {}
        self._serving = serving
        self._local = _Local()
        self._signature = inspect.signature(anatomy.speaker.forward)

    def __deepcopy__(self, memo: Any) -> Passes:
        return self  # hooks on a copied model find that they are on another model, and do nothing

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run whole generations or measurements amid a pass; they have nothing to do with the one under way."""
        local = self._local
        kept = local.prompt, local.forward, local.outer_ids
        local.prompt = local.forward = local.outer_ids = None
        try:
            with paused(self.anatomy.model):
                yield
        finally:
            local.prompt, local.forward, local.outer_ids = kept

    def is_active(self) -> bool:
        """Whether this thread or task has a request open that is not paused."""
        opened = opened_on(self.anatomy.model)
        return opened is not None and not opened.paused

    def generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``generate`` of a thread or task that has a request open."""
        opened = opened_on(self.anatomy.model)
        if opened is None:
            return original(*args, **kwargs)
        decoder = opened.request.decoder
        if getattr(kwargs.get("generation_config"), "is_assistant", False):
            # a draft, written without the image; the passes that verify it are edited
            with paused(self.anatomy.model):
                return original(*args, **kwargs)
        kwargs = {**decoder.generation, **kwargs}
        if decoder.loop is not None:
            kwargs.setdefault("custom_generate", decoder.loop)
        prompt = read_prompt(self.anatomy, original, args, kwargs)
        # the caller's block may end elsewhere before this generation does
        with self._serving(opened.request):
            outer, self._local.prompt = self._local.prompt, prompt
            try:
                result = original(*args, **kwargs)
            finally:
                self._local.prompt, self._local.forward = outer, None
        if prompt is not None and prompt.passes == 0 and any(prompt.columns):
            raise UnsupportedError(
                f"{type(self.anatomy.model).__name__}.generate never called the model's forward, "
                "so its output was not edited",
                hint="if it only wraps another model, attach to that one; else this way cannot be served",
            )
        return result

    def outer(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A direct forward of a delegating family: its inner language model will not see the ids."""
        if module is not self.anatomy.model or self._local.prompt is not None or not self.is_active():
            return
        given = bound(inspect.signature(self.anatomy.model.forward), args, kwargs)
        self._local.outer_ids = given.get("input_ids")

    def outer_done(self, module: nn.Module, _args: tuple[Any, ...], _output: Any) -> None:
        """The inner language model took the ids, unless it ran in a graph that knows no hooks."""
        skipped, self._local.outer_ids = self._local.outer_ids, None
        if skipped is not None and module is self.anatomy.model and self.is_active():
            raise UnsupportedError(
                f"the hooks on {type(self.anatomy.speaker).__name__} inside {type(module).__name__} were not called, "
                "so its output was not edited",
                hint=COMPILED_APART,
            )

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Ahead of the language model: find the pass's request and the sequence it continues."""
        local, opened = self._local, opened_on(self.anatomy.model)
        local.forward = None  # a pass that failed may have left its own
        if opened is None or opened.paused or module is not self.anatomy.speaker:
            return
        request, prompt = opened.request, local.prompt
        decoder = request.decoder
        arguments = bound(self._signature, args, kwargs)
        trail = next_step(prompt, arguments, decoder.key)
        if trail is None or prompt is None:
            forward = self._first_look(request, arguments)
        else:
            forward = ForwardPass(
                request,
                arguments,
                trail.seen,
                1,
                trail.rows // len(trail.columns),
                {},
                PENDING,
                trail,
                arguments["past_key_values"],
                prompt.inputs,
                prompt.start,
                prompt.end,
                True,
                request.layers if decoder.reads_every_step else NOTHING,
            )
        if type(decoder).before is not Decoder.before:
            with paused(self.anatomy.model):
                decoder.before(_upcoming(forward))
        local.forward = forward

    def _first_look(self, request: Request, arguments: dict[str, Any]) -> ForwardPass:
        """Any pass: where its images lie, and what it continues."""
        check_arguments(arguments)
        outer_ids, self._local.outer_ids = self._local.outer_ids, None
        if arguments.get("input_ids") is None and outer_ids is not None:
            arguments["input_ids"] = outer_ids
        ids, embeds = arguments.get("input_ids"), arguments.get("inputs_embeds")
        tokens = embeds if ids is None else ids
        rows, length = rows_and_columns(tokens)
        prompt, key = self._local.prompt, request.decoder.key
        past = past_columns(prompt, arguments, key)
        trail = find_trail(self.anatomy, prompt, arguments, key, past=past, rows=rows, length=length)
        if rows % len(trail.columns):
            raise ReweighError(f"a pass of {rows} rows cannot belong to {len(trail.columns)} prompts")
        if any(trail.unseen(past, length)) and not brings_image(arguments):
            raise missing_image(prompt)
        return ForwardPass(
            request=request,
            arguments=arguments,
            past=past,
            length=length,
            repeat=rows // len(trail.columns),
            states={},
            logits=PENDING,
            trail=trail,
            cache=arguments.get("past_key_values"),
            inputs=arguments if prompt is None else prompt.inputs,
            start=past if prompt is None else prompt.start,
            end=past + length if prompt is None else prompt.end,
            layers=request.layers,
        )

    def capture(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Ahead of what follows a block: keep the block's output."""
        forward = self._local.forward
        if forward is None or layer not in forward.layers or module is not self.exits.get(layer):
            return
        state = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(state, Tensor) or state.ndim != 3:
            shape = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise UnsupportedError(
                f"the stream after block {layer} of {type(self.anatomy.model).__name__} is {shape}, not (B, T, d)",
                hint="this family keeps several streams between blocks; read it at the last block (layer=-1)",
            )
        forward.states[layer] = state

    def after(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        """After the language model: give the pass to the decoder, and its logits to the caller."""
        forward = self._local.forward
        if forward is None or module is not self.anatomy.speaker:
            return None
        self._local.forward = None
        if not hasattr(output, "logits"):
            raise UnsupportedError(
                f"{type(self.anatomy.speaker).__name__} returned a {type(output).__name__} without named logits",
                hint="leave return_dict at True",
            )
        if len(forward.states) < len(forward.layers):
            missing = min(forward.layers - forward.states.keys())
            raise UnsupportedError(
                f"the hook after block {missing} of {type(self.anatomy.model).__name__} was not called, so its "
                "stream cannot be read",
                hint=f"{COMPILED_APART}; a pass that skips blocks cannot be served",
            )
        forward.logits = output.logits
        decoder, trail = forward.request.decoder, forward.trail
        if not forward.is_step:
            _follow_cache(forward, output)
        if forward.is_step and not decoder.reads_every_step:
            logits = decoder.edit(forward)  # looks at logits alone and runs no pass of its own
        else:
            with paused(self.anatomy.model):
                logits = decoder.edit(forward)
        trail.seen = max(trail.seen, forward.past + forward.length)
        trail.rows = forward.rows
        if self._local.prompt is not None:
            self._local.prompt.passes += 1
        if logits is None:
            return None
        output.logits = logits
        return output


def _follow_cache(forward: ForwardPass, output: Any) -> None:
    """Leave the trail on the pass's cache; a first pass may have made it."""
    if forward.cache is None:
        forward.cache = getattr(output, "past_key_values", None)
    key = forward.request.decoder.key
    if forward.cache is not None and trail_on(forward.cache, key) is not forward.trail:
        leave_trail(forward.cache, key, forward.trail)


def _upcoming(forward: ForwardPass) -> UpcomingPass:
    mask = forward.arguments.get("attention_mask")
    return UpcomingPass(
        past=forward.past,
        length=forward.length,
        rows=forward.rows,
        columns=[list(row) for row in forward.trail.columns],
        start=forward.start,
        end=forward.end,
        mask=mask if isinstance(mask, Tensor) and mask.ndim == 2 else None,
        inputs=forward.inputs,
        trail=forward.trail,
    )
