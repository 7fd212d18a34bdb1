"""The tap: what each forward pass of a model shows, and the one way to change its logits.

A tap holds forward hooks while its context is open. For every forward pass it hands a ``Glimpse`` to one listener:
the raw logits, the residual streams asked for, and the trail of the sequence, i.e. which positions of the cached
sequence carry image content and what the listener remembered of them. The listener returns new logits or ``None``.

The trail travels on the key-value cache itself: it lives as long as the cached positions do, survives a copied or
cropped cache, and keeps threads apart. Knows nothing of evidence, tables or any decoder.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.engines.base import Coming, Glimpse, Listener
from reweigh.engines.transformers.arguments import bound, brings_image, look_up, past_length, token_ids
from reweigh.engines.transformers.trail import Segment, Trail, new_trail
from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.positions import Patch, layout

__all__ = ["Coming", "Glimpse", "Listener", "Segment", "Tap", "Trail"]

PACKED = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")
"""Ways of generating that pack several sequences into one row."""

_TRAILS = "_reweigh_trails"
_keys = count(1)
_open_lock = threading.Lock()
_open: weakref.WeakKeyDictionary[nn.Module, Tap] = weakref.WeakKeyDictionary()


@dataclass(slots=True)
class _Plan:
    """The prompt of a running ``generate``: where its images lie, found once, before the first forward."""

    start: int
    end: int
    inputs: Mapping[str, Any]
    columns: list[list[int]]
    patches: list[list[Patch | None]]
    number: int = field(default_factory=lambda: next(_keys))
    passes: int = 0
    trail: Trail | None = None


@dataclass(slots=True)
class _Frame:
    """A forward pass under way."""

    arguments: dict[str, Any]
    past: int
    rows: int
    length: int
    trail: Trail
    states: dict[int, Tensor] = field(default_factory=dict)


class _Local(threading.local):
    """What belongs to one thread."""

    plan: _Plan | None = None
    frame: _Frame | None = None
    outer_ids: Tensor | None = None
    paused: int = 0
    running: int = 0


class Tap:
    """Hooks on one model that show its forward passes to a listener while the context is open.

    One model carries one open tap at a time; the same tap may be open in several threads.
    """

    def __init__(self, anatomy: Anatomy, listener: Listener) -> None:
        self.anatomy = anatomy
        self.listener = listener
        self._key = next(_keys)
        self._local = _Local()
        self._contexts = 0
        self._running = 0
        self._gate = threading.Condition()
        self._undo: list[Callable[[], None]] = []
        self._signature = inspect.signature(anatomy.speaker.forward)

    def __enter__(self) -> Tap:
        with self._gate:
            self._hold()
            self._contexts += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._gate:
            self._contexts -= 1
            try:  # a generation started inside, in another thread, is edited to its end
                self._gate.wait_for(lambda: self._contexts > 0 or self._running == self._local.running)
            finally:
                self._release()

    @contextmanager
    def _generation(self, plan: _Plan | None) -> Iterator[None]:
        """Hold the hooks for one ``generate``: its thread may begin after the ``with`` block was left."""
        with self._gate:
            self._hold()
            self._running += 1
        self._local.running += 1
        outer, self._local.plan = self._local.plan, plan
        try:
            yield
        finally:
            self._local.plan, self._local.frame = outer, None
            self._local.running -= 1
            with self._gate:
                self._running -= 1
                self._release()
                self._gate.notify_all()

    def _hold(self) -> None:
        """Install the hooks unless they are there."""
        model = self.anatomy.model
        with _open_lock:
            other = _open.get(model)
            if other is not None and other is not self:
                raise UnsupportedError(
                    f"this {type(model).__name__} is already attached to another decoder",
                    hint="leave the other `with` block first; two edits of one model would disturb each other",
                )
            if other is None:
                try:
                    self._install()
                except BaseException:
                    self._remove()
                    raise
                _open[model] = self

    def _release(self) -> None:
        """Remove the hooks when neither a ``with`` block nor a generation needs them."""
        if self._contexts or self._running:
            return
        with _open_lock:
            if _open.pop(self.anatomy.model, None) is self:
                self._remove()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run further forward passes (a branch, the lens) in this thread without showing them."""
        self._local.paused += 1
        try:
            yield
        finally:
            self._local.paused -= 1

    def _install(self) -> None:
        model, speaker = self.anatomy.model, self.anatomy.speaker
        if hasattr(self.listener, "engage"):
            self._undo.append(self.listener.engage(self))
        self._watch(speaker, self._before, prepend=True)
        for layer in sorted(self.listener.layers):
            self._watch(self.anatomy.exit_of(layer), functools.partial(self._capture, layer))
        after = torch.compiler.disable(self._after)  # type: ignore[no-untyped-call]
        hook = speaker.register_forward_hook(after)
        self._undo.append(hook.remove)
        if speaker is not model:
            self._watch(model, self._outer)
        if hasattr(model, "generate"):
            self._shadow(model, "generate", self._generate(model.generate))
        for module in {id(part): part for part in (model, speaker)}.values():
            for name in PACKED:
                if hasattr(module, name):
                    self._shadow(module, name, functools.partial(_refuse, name))

    def _watch(self, module: nn.Module, hook: Callable[..., None], *, prepend: bool = False) -> None:
        """Call ``hook`` ahead of a module; a compiled forward breaks its graph there instead of tracing it."""
        quiet = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
        self._undo.append(module.register_forward_pre_hook(quiet, with_kwargs=True, prepend=prepend).remove)

    def _shadow(self, module: Any, name: str, function: Callable[..., Any]) -> None:
        """Put a function on a module instance; undoing it brings back exactly what was there."""
        own = vars(module)
        before = own.get(name)
        own[name] = function
        self._undo.append(lambda: own.pop(name) if before is None else own.update({name: before}))

    def _remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _generate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def generate(*args: Any, **kwargs: Any) -> Any:
            if getattr(kwargs.get("generation_config"), "is_assistant", False):
                with (
                    self.paused()
                ):  # a draft, written without the image; the passes that verify it are edited
                    return original(*args, **kwargs)
            kwargs = {**getattr(self.listener, "generation", {}), **kwargs}
            if hasattr(self.listener, "loop"):
                kwargs.setdefault("custom_generate", self.listener.loop)
            plan = self._plan(original, args, kwargs)
            with self._generation(plan):
                result = original(*args, **kwargs)
            if plan is not None and plan.passes == 0 and any(plan.columns):
                raise UnsupportedError(
                    f"{type(self.anatomy.model).__name__}.generate never called the model's forward, "
                    "so its output was not edited",
                    hint="if it only wraps another model, attach to that one; else this way cannot be served",
                )
            return result

        return generate

    def _plan(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Plan | None:
        given = bound(inspect.signature(original), args, kwargs)
        configs = (given.get("generation_config"), getattr(self.anatomy.speaker, "generation_config", None))
        if any(look_up(place, "assistant_early_exit") is not None for place in (given, *configs)):
            raise UnsupportedError(
                "assistant_early_exit skips decoder blocks, so their states cannot be read",
                hint="use assistant_model or prompt_lookup_num_tokens instead",
            )
        ids = given.get("input_ids")
        ids = given.get("inputs") if ids is None else ids
        if ids is None or not hasattr(ids, "ndim") or ids.ndim != 2 or ids.is_floating_point():
            if any(given.get(name) is not None for name in ("inputs_embeds", "pixel_values")):
                raise UnsupportedError(
                    "generate was called without input_ids, so the image's positions cannot be told",
                    hint="pass the processor's input_ids along",
                )
            return None
        past = past_length(given.get("past_key_values"))
        mask = given.get("attention_mask")
        whole = past > 0 and (mask is None or mask.shape[1] == ids.shape[1])
        fresh = ids[:, past:] if whole else ids
        return _Plan(past, past + fresh.shape[1], given, *self._layout(fresh, given))

    def _layout(
        self, ids: Tensor, inputs: Mapping[str, Any]
    ) -> tuple[list[list[int]], list[list[Patch | None]]]:
        rows = layout(self.anatomy.family, self.anatomy.config, ids, inputs)
        return [[column for column, _ in row] for row in rows], [[place for _, place in row] for row in rows]

    def _outer(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A direct forward of a delegating family: its inner language model will not see the ids."""
        if self._local.paused or self._local.plan is not None:
            return
        given = bound(inspect.signature(self.anatomy.model.forward), args, kwargs)
        self._local.outer_ids = given.get("input_ids")

    def _before(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._local.paused:
            return
        arguments = bound(self._signature, args, kwargs)
        outer_ids, self._local.outer_ids = self._local.outer_ids, None
        if arguments.get("input_ids") is None and outer_ids is not None:
            arguments["input_ids"] = outer_ids
        ids, embeds = arguments.get("input_ids"), arguments.get("inputs_embeds")
        tokens = embeds if ids is None else ids
        if tokens is None:
            raise UnsupportedError("a forward pass had neither input_ids nor inputs_embeds")
        if isinstance(arguments.get("logits_to_keep"), Tensor):
            raise UnsupportedError(
                "logits_to_keep picks single columns, so their places in the sequence cannot be told",
                hint="give a number of last columns",
            )
        past, rows, length = self._past(arguments), tokens.shape[0], tokens.shape[1]
        trail = self._trail(arguments, past, rows, length)
        if rows % len(trail.columns):
            raise ReweighError(f"a pass of {rows} rows cannot belong to {len(trail.columns)} prompts")
        if any(trail.unseen(past, length)) and not brings_image(arguments):
            raise _blind(self._local.plan)
        self._local.frame = _Frame(arguments, past, rows, length, trail)
        if hasattr(self.listener, "before"):
            with self.paused():
                self.listener.before(Coming(past, length, rows, [list(row) for row in trail.columns]))

    def _capture(self, layer: int, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = self._local.frame
        if self._local.paused or frame is None:
            return
        state = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(state, Tensor) or state.ndim != 3:
            shape = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise UnsupportedError(
                f"the stream after block {layer} of {type(self.anatomy.model).__name__} is {shape}, not (B, T, d)",
                hint="this family keeps several streams between blocks; read it at the last block (layer=-1)",
            )
        frame.states[layer] = state

    def _after(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        frame = self._local.frame
        if self._local.paused or frame is None:
            return None
        self._local.frame = None
        if not hasattr(output, "logits"):
            raise UnsupportedError(
                f"{type(self.anatomy.speaker).__name__} returned a {type(output).__name__} without named logits",
                hint="leave return_dict at True",
            )
        cache = frame.arguments.get("past_key_values")
        cache = cache if cache is not None else getattr(output, "past_key_values", None)
        if cache is not None:
            vars(cache).setdefault(_TRAILS, {})[self._key] = frame.trail
        with self.paused():
            logits = self.listener.listen(self._glimpse(frame, cache, output.logits))
        frame.trail.seen = max(frame.trail.seen, frame.past + frame.length)
        if self._local.plan is not None:
            self._local.plan.passes += 1
        if logits is not None:
            output.logits = logits
            return output
        return None

    def _glimpse(self, frame: _Frame, cache: Any, logits: Tensor) -> Glimpse:
        plan, past, length = self._local.plan, frame.past, frame.length
        return Glimpse(
            arguments=frame.arguments,
            past=past,
            length=length,
            repeat=frame.rows // len(frame.trail.columns),
            states=frame.states,
            logits=logits,
            trail=frame.trail,
            cache=cache,
            inputs=frame.arguments if plan is None else plan.inputs,
            start=past if plan is None else plan.start,
            end=past + length if plan is None else plan.end,
        )

    def _trail_on(self, cache: Any) -> Trail | None:
        """The trail that this tap left on a cache."""
        trail: Trail | None = None if cache is None else vars(cache).get(_TRAILS, {}).get(self._key)
        return trail

    def _past(self, arguments: Mapping[str, Any]) -> int:
        """Columns before this pass; amid ``generate`` the trail knows them."""
        plan, cache = self._local.plan, arguments.get("past_key_values")
        known = plan.trail if plan is not None and plan.passes else None
        if known is not None and self._trail_on(cache) is known:
            return past_length(cache, known.seen)
        return past_length(cache)

    def _trail(self, arguments: Mapping[str, Any], past: int, rows: int, length: int) -> Trail:
        """The trail this pass continues or begins, with the visual columns of its prompt noted."""
        plan = self._local.plan
        trail = self._continued(arguments, past, length)
        if plan is not None and plan.trail is None:
            trail = trail or new_trail(len(plan.columns))
            trail.extend(plan.start, plan.columns, plan.patches)
            trail.prompt, plan.trail = plan.number, trail
        elif trail is None or (length > 1 and (plan is None or trail.prompt != plan.number)):
            # a pass outside generate, or beside its prompt, such as the image-free branch of guidance
            trail = trail or new_trail(rows)
            trail.extend(past, *self._layout(token_ids(arguments), arguments))
        return trail

    def _continued(self, arguments: Mapping[str, Any], past: int, length: int) -> Trail | None:
        """The trail of the columns before this pass, ``None`` if there are none."""
        plan, cache = self._local.plan, arguments.get("past_key_values")
        if cache is None:  # without a cache each step of generate repeats its prompt
            again = plan is not None and plan.trail is not None and length >= plan.end
            return plan.trail if plan is not None and again else None
        if past == 0:
            return None
        trail = self._trail_on(cache)
        if trail is None or past > trail.seen:
            raise UnsupportedError(
                f"the cache holds {past} positions, {past if trail is None else past - trail.seen} of which were "
                "not seen by this attachment, so the evidence of an image among them is unknown",
                hint="fill the cache inside the same attachment's `with` block, or start without a cache",
            )
        trail.rewind(past)
        return trail


def _blind(plan: _Plan | None) -> ReweighError:
    """Why a pass has image placeholders but no image."""
    if plan is None or not brings_image(plan.inputs):
        return InputError(
            "the prompt holds image placeholders, but no image was given",
            hint="pass all outputs of the processor (pixel_values too) together with its input_ids",
        )
    return UnsupportedError(
        "generate did not hand the image on to the pass that holds its placeholders, so the model never sees it; "
        "transformers does so when it prefills in chunks",
        hint="leave prefill_chunk_size out for prompts with images",
    )


def _refuse(name: str, *_args: Any, **_kwargs: Any) -> None:
    raise UnsupportedError(
        f"{name} packs several sequences into one row and bypasses the edit",
        hint="use generate, batched if you like",
    )
