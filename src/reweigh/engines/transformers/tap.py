"""The tap: hooks on one model that show its forward passes to the decoder of the request they belong to.

All sessions of a model share its tap. It is open while a request is open anywhere; a pass of a thread or task without
a request runs as if there were no tap. A decoder gets a ``ForwardPass`` with the raw logits, the residual streams it
reads and the trail of the sequence, and returns new logits or ``None``.

The trail travels on the key-value cache itself: it lives as long as the cached positions do and survives a cache that
is copied, cropped or reordered. Knows nothing of evidence, tables or any decoder.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.engines.base import Decoder, ForwardPass, Request, UpcomingPass
from reweigh.engines.context import Opened, enter, leave, opened_on, paused
from reweigh.engines.transformers.arguments import bound, brings_image
from reweigh.engines.transformers.attention import Attention
from reweigh.engines.transformers.compiled import forget_compiled
from reweigh.engines.transformers.continuation import (
    find_trail,
    leave_trail,
    next_step,
    past_columns,
    trail_on,
)
from reweigh.engines.transformers.hooks import Hooks
from reweigh.engines.transformers.prompt import Prompt, missing_image, read_prompt
from reweigh.errors import ReweighError, UnsupportedError
from reweigh.families.anatomy import Anatomy

PACKED = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")
"""Ways of generating that pack several sequences into one row."""

COMPILED_APART = "attach to the compiled model, not to the one inside it"
NOTHING: frozenset[int] = frozenset()
PENDING = torch.empty(0)
"""Stands for the logits of a pass under way."""

_lock = threading.RLock()
_taps: weakref.WeakValueDictionary[int, Tap] = weakref.WeakValueDictionary()
"""The tap on each model, by the model's address: its hooks keep it alive, and it keeps the model."""


class _Local(threading.local):
    """What is under way in one thread."""

    prompt: Prompt | None = None
    forward: ForwardPass | None = None
    outer_ids: Tensor | None = None


class Tap:
    """Hooks on one model, shared by all requests that are open on it."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._local = _Local()
        self._uses: dict[Decoder, int] = {}
        self._undo_decoder: dict[Decoder, Callable[[], None]] = {}
        self._hooks = Hooks()
        self._exits: dict[int, nn.Module] = {}
        self._stays = False
        self._attention = Attention(anatomy)
        self._signature = inspect.signature(anatomy.speaker.forward)

    @classmethod
    def of(cls, anatomy: Anatomy) -> Tap:
        """The open tap of a model, or a new one."""
        with _lock:
            return _taps.get(id(anatomy.model)) or cls(anatomy)

    def __deepcopy__(self, memo: Any) -> Tap:
        return self  # hooks on a copied model find that they are on another model, and do nothing

    def open(self, request: Request) -> Opened:
        """Open a request in this thread or task."""
        outer = opened_on(self.anatomy.model)
        if outer is not None and not outer.paused and outer.request.decoder is not request.decoder:
            raise UnsupportedError(
                f"this {type(self.anatomy.model).__name__} already follows another decoder here",
                hint="leave the other `with` block first; two edits of one text would disturb each other",
            )
        self._hold(request)
        return enter(self.anatomy.model, request)

    def close(self, opened: Opened) -> None:
        """Close a request of this thread or task."""
        leave(opened)
        self._release(opened.request)

    @contextmanager
    def serving(self, request: Request) -> Iterator[Request]:
        """Keep a request open in this thread or task."""
        opened = self.open(request)
        try:
            yield request
        finally:
            self.close(opened)

    def paused(self) -> AbstractContextManager[None]:
        """Run further forward passes (a branch, the lens) without the decoder."""
        return paused(self.anatomy.model)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run whole generations or measurements amid a pass; they have nothing to do with the one under way."""
        local = self._local
        kept = local.prompt, local.forward, local.outer_ids
        local.prompt = local.forward = local.outer_ids = None
        try:
            with self.paused():
                yield
        finally:
            local.prompt, local.forward, local.outer_ids = kept

    def _hold(self, request: Request) -> None:
        """Install what a request needs unless it is there."""
        decoder = request.decoder
        with _lock:
            other = _taps.get(id(self.anatomy.model))
            if other is not None and other is not self:  # two threads opened the first request at once
                other._hold(request)
                return
            try:
                before = len(self._hooks)
                if other is None:
                    self._install()
                    _taps[id(self.anatomy.model)] = self
                self._read_layers(request.layers)
                if len(self._hooks) > before:
                    self._stays = forget_compiled(self.anatomy.model, wrapped=self.anatomy.compiled)
                if decoder not in self._uses:
                    self._undo_decoder[decoder] = self._engage(decoder)
                self._uses[decoder] = self._uses.get(decoder, 0) + 1
            except BaseException:
                self._close_if_unused()
                raise

    def _release(self, request: Request) -> None:
        """Remove what no request needs any longer."""
        decoder = request.decoder
        with _lock:
            other = _taps.get(id(self.anatomy.model))
            if other is not None and other is not self:
                other._release(request)
                return
            self._uses[decoder] -= 1
            if not self._uses[decoder]:
                del self._uses[decoder]
                self._undo_decoder.pop(decoder)()
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Take the hooks off, except off a compiled model: it would have to be compiled again for each request."""
        if self._uses or self._stays:
            return
        self._hooks.remove()
        self._exits.clear()
        if _taps.get(id(self.anatomy.model)) is self:
            del _taps[id(self.anatomy.model)]

    def _engage(self, decoder: Decoder) -> Callable[[], None]:
        release = self._attention.hold() if decoder.attends else None
        try:
            undo = decoder.engage(self)
        except BaseException:
            if release is not None:
                release()
            raise

        def both() -> None:
            undo()
            if release is not None:
                release()

        return both

    def _install(self) -> None:
        model, speaker = self.anatomy.model, self.anatomy.speaker
        self._hooks.before(speaker, self._before, prepend=True)
        self._hooks.after(speaker, self._after)
        if speaker is not model:
            self._hooks.before(model, self._outer)
            self._hooks.after(model, self._outer_done)
        if hasattr(model, "generate"):
            self._hooks.shadow(model, "generate", self._generate, self._is_active)
        for module in {id(part): part for part in (model, speaker)}.values():
            for name in PACKED:
                if hasattr(module, name):
                    self._hooks.shadow(module, name, functools.partial(_refuse, name), self._is_active)

    def _read_layers(self, layers: frozenset[int]) -> None:
        new = {layer: self.anatomy.exit_of(layer) for layer in sorted(layers - self._exits.keys())}
        for layer, module in new.items():
            self._hooks.before(module, functools.partial(self._capture, layer))
        self._exits |= new

    def _is_active(self) -> bool:
        opened = opened_on(self.anatomy.model)
        return opened is not None and not opened.paused

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``generate`` of a thread or task that has a request open."""
        opened = opened_on(self.anatomy.model)
        if opened is None:
            return original(*args, **kwargs)
        decoder = opened.request.decoder
        if getattr(kwargs.get("generation_config"), "is_assistant", False):
            with self.paused():  # a draft, written without the image; the passes that verify it are edited
                return original(*args, **kwargs)
        kwargs = {**decoder.generation, **kwargs}
        if decoder.loop is not None:
            kwargs.setdefault("custom_generate", decoder.loop)
        prompt = read_prompt(self.anatomy, original, args, kwargs)
        with self.serving(opened.request):  # the caller's block may end elsewhere before this generation does
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

    def _outer(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A direct forward of a delegating family: its inner language model will not see the ids."""
        if module is not self.anatomy.model or self._local.prompt is not None or not self._is_active():
            return
        given = bound(inspect.signature(self.anatomy.model.forward), args, kwargs)
        self._local.outer_ids = given.get("input_ids")

    def _outer_done(self, module: nn.Module, _args: tuple[Any, ...], _output: Any) -> None:
        """The inner language model took the ids, unless it ran in a graph that knows no hooks."""
        skipped, self._local.outer_ids = self._local.outer_ids, None
        if skipped is not None and module is self.anatomy.model and self._is_active():
            raise UnsupportedError(
                f"the hooks on {type(self.anatomy.speaker).__name__} inside {type(module).__name__} were not called, "
                "so its output was not edited",
                hint=COMPILED_APART,
            )

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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
            with self.paused():
                decoder.before(_upcoming(forward))
        local.forward = forward

    def _first_look(self, request: Request, arguments: dict[str, Any]) -> ForwardPass:
        """Any pass: where its images lie, and what it continues."""
        _check_arguments(arguments)
        outer_ids, self._local.outer_ids = self._local.outer_ids, None
        if arguments.get("input_ids") is None and outer_ids is not None:
            arguments["input_ids"] = outer_ids
        ids, embeds = arguments.get("input_ids"), arguments.get("inputs_embeds")
        tokens = embeds if ids is None else ids
        if tokens is None:
            raise UnsupportedError("a forward pass had neither input_ids nor inputs_embeds")
        prompt, key = self._local.prompt, request.decoder.key
        past, (rows, length) = past_columns(prompt, arguments, key), tokens.shape[:2]
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

    def _capture(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        forward = self._local.forward
        if forward is None or layer not in forward.layers or module is not self._exits.get(layer):
            return
        state = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(state, Tensor) or state.ndim != 3:
            shape = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise UnsupportedError(
                f"the stream after block {layer} of {type(self.anatomy.model).__name__} is {shape}, not (B, T, d)",
                hint="this family keeps several streams between blocks; read it at the last block (layer=-1)",
            )
        forward.states[layer] = state

    def _after(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
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
            with self.paused():
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


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    if isinstance(arguments.get("logits_to_keep"), Tensor):
        raise UnsupportedError(
            "logits_to_keep picks single columns, so their positions in the sequence cannot be told",
            hint="give a number of last columns",
        )
    if arguments.get("labels") is not None:
        raise UnsupportedError(
            "labels were given: the model would return the loss of the unedited logits",
            hint="leave labels out and compute the loss from the output's logits",
        )


def _refuse(name: str, *_args: Any, **_kwargs: Any) -> None:
    raise UnsupportedError(
        f"{name} packs several sequences into one row and bypasses the edit",
        hint="use generate, batched if you like",
    )
