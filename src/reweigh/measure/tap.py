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
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from torch import Tensor, nn

from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.places import Place, layout

_TRAILS = "_reweigh_trails"
_keys = count(1)
_open_lock = threading.Lock()
_open: weakref.WeakKeyDictionary[nn.Module, Tap] = weakref.WeakKeyDictionary()


@dataclass(slots=True)
class Segment:
    """Visual columns ``first..last`` that were seen in one forward pass, with what the listener made of them."""

    first: int
    last: int
    value: Any


@dataclass(slots=True)
class Trail:
    """What is known of one (batched) sequence: its visual columns by prompt row, and the listener's memory."""

    columns: list[list[int]]
    places: list[list[Place | None]]
    segments: list[Segment] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    seen: int = 0

    def extend(self, start: int, columns: list[list[int]], places: list[list[Place | None]]) -> None:
        """Add the visual columns of new prompt tokens that begin at column ``start``."""
        if len(columns) != len(self.columns):
            raise InputError(f"the cache holds {len(self.columns)} rows, but {len(columns)} were given")
        for row, (new, where) in enumerate(zip(columns, places, strict=True)):
            self.columns[row] += [start + column for column in new]
            self.places[row] += where

    def rewind(self, length: int) -> None:
        """Forget everything at or after column ``length``, because the cache was cropped to it."""
        if length >= self.seen:
            return
        for segment in self.segments:
            if segment.first < length <= segment.last:
                raise UnsupportedError(
                    f"the cache was cropped to {length} positions, in the middle of an image "
                    f"({segment.first}..{segment.last})",
                    hint="crop before or after the whole image",
                )
        kept = [segment for segment in self.segments if segment.last < length]
        if len(kept) != len(self.segments):
            self.segments = kept
            self.memory.clear()
        for row, columns in enumerate(self.columns):
            end = bisect_left(columns, length)
            del self.columns[row][end:], self.places[row][end:]
        self.seen = length

    @property
    def last(self) -> int:
        """The last visual column of any row, -1 when there is none."""
        return max((columns[-1] for columns in self.columns if columns), default=-1)


@dataclass(slots=True)
class Glimpse:
    """One forward pass, as a listener sees it.

    Attributes:
        arguments: The forward's arguments by name.
        past: Columns that were in the cache before this pass.
        length: Columns of this pass.
        repeat: Forward rows per prompt row (beams, ``num_return_sequences``).
        states: Residual stream (B, T, d) after each block asked for.
        logits: Raw logits (B, K, V) of the last K columns of this pass.
        trail: Memory of the sequence.
        cache: The key-value cache after this pass, if any.
        inputs: What ``generate`` was called with, by name; the forward's own arguments outside ``generate``.
        start: Column at which the prompt in ``inputs`` begins (after a kept cache).
        end: Column after the prompt; what follows it was generated.
    """

    arguments: Mapping[str, Any]
    past: int
    length: int
    repeat: int
    states: Mapping[int, Tensor]
    logits: Tensor
    trail: Trail
    cache: Any
    inputs: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0
    end: int = 0

    def fresh(self) -> list[list[int]]:
        """For each prompt row, the visual columns first seen in this pass, relative to its start; empty if none."""
        low, high = max(self.trail.seen, self.past), self.past + self.length
        if low > self.trail.last:
            return []
        rows = []
        for columns in self.trail.columns:
            inside = columns[bisect_left(columns, low) : bisect_left(columns, high)]
            rows.append([column - self.past for column in inside])
        return rows

    def start_of(self, row: int) -> int:
        """Index into the K logits of a prompt row's first column at or after its last visual one."""
        columns = self.trail.columns[row]
        first = self.past + self.length - self.logits.shape[1]
        return max(0, columns[-1] - first) if columns else self.logits.shape[1]


class Listener(Protocol):
    """Receives every forward pass of a tapped model.

    Three further attributes are honoured where a listener has them: ``generation``, keyword defaults for
    ``generate`` (what the caller passes wins); ``engage(tap)``, called once when the tap opens and returning what
    undoes it; ``before(Coming)``, called ahead of each forward pass.
    """

    @property
    def layers(self) -> frozenset[int]:
        """Blocks whose output stream is needed; -1 is the input of the first block."""

    def listen(self, glimpse: Glimpse) -> Tensor | None:
        """Look at one forward pass; return logits to put in place of the raw ones, or ``None``."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A forward pass that is about to run: its size, and the visual columns that each prompt row will then have."""

    past: int
    length: int
    rows: int
    columns: list[list[int]]


@dataclass(slots=True)
class _Plan:
    """The prompt of a running ``generate``: where its images lie, found once, before the first forward."""

    start: int
    end: int
    inputs: Mapping[str, Any]
    columns: list[list[int]]
    places: list[list[Place | None]]
    passes: int = 0
    trail: Trail | None = None


@dataclass(slots=True)
class _Frame:
    """A forward pass under way."""

    arguments: dict[str, Any]
    past: int
    states: dict[int, Tensor] = field(default_factory=dict)


class _Local(threading.local):
    """What belongs to one thread."""

    plan: _Plan | None = None
    frame: _Frame | None = None
    outer_ids: Tensor | None = None
    paused: int = 0


class Tap:
    """Hooks on one model that show its forward passes to a listener while the context is open.

    One model carries one open tap at a time; the same tap may be open in several threads.
    """

    def __init__(self, anatomy: Anatomy, listener: Listener) -> None:
        self.anatomy = anatomy
        self.listener = listener
        self._key = next(_keys)
        self._local = _Local()
        self._depth = 0
        self._running = 0
        self._idle = threading.Condition()
        self._undo: list[Callable[[], None]] = []
        self._signature = inspect.signature(anatomy.speaker.forward)

    def __enter__(self) -> Tap:
        model = self.anatomy.model
        with _open_lock:
            other = _open.get(model)
            if other is not None and other is not self:
                raise UnsupportedError(
                    f"this {type(model).__name__} is already attached to another decoder",
                    hint="leave the other `with` block first; two edits of one model would disturb each other",
                )
            if self._depth == 0:
                try:
                    self._install()
                except BaseException:
                    self._remove()
                    raise
                _open[model] = self
            self._depth += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._idle:  # a generation started inside, in another thread, is edited to its end
            self._idle.wait_for(lambda: self._running == 0 or self._depth > 1)
        with _open_lock:
            self._depth -= 1
            if self._depth == 0:
                _open.pop(self.anatomy.model, None)
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
        hook = speaker.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True)
        self._undo.append(hook.remove)
        for layer in sorted(self.listener.layers):
            place = self.anatomy.exit_of(layer)
            hook = place.register_forward_pre_hook(functools.partial(self._capture, layer), with_kwargs=True)
            self._undo.append(hook.remove)
        hook = speaker.register_forward_hook(self._after)
        self._undo.append(hook.remove)
        if speaker is not model:
            hook = model.register_forward_pre_hook(self._outer, with_kwargs=True)
            self._undo.append(hook.remove)
        if hasattr(model, "generate"):
            self._shadow("generate", self._generate(model.generate))
        for name in ("generate_batch", "continuous_batching_context_manager"):
            if hasattr(model, name):
                self._shadow(name, functools.partial(_refuse, name))

    def _shadow(self, name: str, function: Callable[..., Any]) -> None:
        """Put a function on the model instance; undoing it brings back exactly what was there."""
        model = self.anatomy.model
        before = vars(model).get(name)
        vars(model)[name] = function

        def undo() -> None:
            if before is None:
                vars(model).pop(name, None)
            else:
                vars(model)[name] = before

        self._undo.append(undo)

    def _remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _generate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def generate(*args: Any, **kwargs: Any) -> Any:
            kwargs = {**getattr(self.listener, "generation", {}), **kwargs}
            outer = self._local.plan
            plan = self._local.plan = self._plan(original, args, kwargs)
            with self._idle:
                self._running += 1
            try:
                result = original(*args, **kwargs)
            finally:
                self._local.plan = outer
                with self._idle:
                    self._running -= 1
                    self._idle.notify_all()
            if plan is not None and plan.passes == 0 and any(plan.columns):
                raise UnsupportedError(
                    f"{type(self.anatomy.model).__name__}.generate never called the model's forward, "
                    "so its output was not edited",
                    hint="this way of generating cannot be served",
                )
            return result

        return generate

    def _plan(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Plan | None:
        if kwargs.get("assistant_early_exit") is not None:
            raise UnsupportedError(
                "assistant_early_exit skips decoder blocks, so their states cannot be read"
            )
        given = _bound(inspect.signature(original), args, kwargs)
        ids = given.get("input_ids", given.get("inputs"))
        if ids is None or not hasattr(ids, "ndim") or ids.ndim != 2 or ids.is_floating_point():
            if any(given.get(name) is not None for name in ("inputs_embeds", "pixel_values")):
                raise UnsupportedError(
                    "generate was called without input_ids, so the image's positions cannot be told",
                    hint="pass the processor's input_ids along",
                )
            return None
        past = _past_length(given.get("past_key_values"))
        mask = given.get("attention_mask")
        whole = past > 0 and (mask is None or mask.shape[1] == ids.shape[1])
        fresh = ids[:, past:] if whole else ids
        return _Plan(past, past + fresh.shape[1], given, *self._layout(fresh, given))

    def _layout(
        self, ids: Tensor, inputs: Mapping[str, Any]
    ) -> tuple[list[list[int]], list[list[Place | None]]]:
        rows = layout(self.anatomy.family, self.anatomy.config, ids, inputs)
        return [[column for column, _ in row] for row in rows], [[place for _, place in row] for row in rows]

    def _outer(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A direct forward of a delegating family: its inner language model will not see the ids."""
        if self._local.paused or self._local.plan is not None:
            return
        given = _bound(inspect.signature(self.anatomy.model.forward), args, kwargs)
        self._local.outer_ids = given.get("input_ids")

    def _before(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._local.paused:
            return
        arguments = _bound(self._signature, args, kwargs)
        outer_ids, self._local.outer_ids = self._local.outer_ids, None
        if arguments.get("input_ids") is None and outer_ids is not None:
            arguments["input_ids"] = outer_ids
        self._local.frame = _Frame(arguments, _past_length(arguments.get("past_key_values")))
        if hasattr(self.listener, "before"):
            with self.paused():
                self.listener.before(self._coming(self._local.frame))

    def _coming(self, frame: _Frame) -> Coming:
        ids, embeds = frame.arguments.get("input_ids"), frame.arguments.get("inputs_embeds")
        tokens = embeds if ids is None else ids
        if tokens is None:
            raise UnsupportedError("a forward pass had neither input_ids nor inputs_embeds")
        rows, length = tokens.shape[0], tokens.shape[1]
        plan, cache = self._local.plan, frame.arguments.get("past_key_values")
        trail = vars(cache).get(_TRAILS, {}).get(self._key) if cache is not None else None
        known = [list(columns) for columns in trail.columns] if trail is not None and frame.past else []
        if plan is not None and (not known or plan.trail is not trail):
            first, fresh = plan.start, plan.columns
        elif plan is None and (frame.past == 0 or length > 1):
            first, fresh = frame.past, self._layout(self._ids(frame), frame.arguments)[0]
        else:
            first, fresh = 0, []
        known = known or [[] for _ in fresh]
        for row, columns in enumerate(fresh):
            known[row] += [first + column for column in columns]
        return Coming(frame.past, length, rows, known)

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
        cache = frame.arguments.get("past_key_values")
        cache = cache if cache is not None else getattr(output, "past_key_values", None)
        glimpse = self._glimpse(frame, cache, output.logits)
        with self.paused():
            logits = self.listener.listen(glimpse)
        glimpse.trail.seen = max(glimpse.trail.seen, glimpse.past + glimpse.length)
        if self._local.plan is not None:
            self._local.plan.passes += 1
        if logits is not None:
            output.logits = logits
            return output
        return None

    def _glimpse(self, frame: _Frame, cache: Any, logits: Tensor) -> Glimpse:
        ids, embeds = frame.arguments.get("input_ids"), frame.arguments.get("inputs_embeds")
        tokens = embeds if ids is None else ids
        if tokens is None:
            raise UnsupportedError("a forward pass had neither input_ids nor inputs_embeds")
        rows, length = tokens.shape[0], tokens.shape[1]
        trail = self._trail(frame, cache, rows)
        plan = self._local.plan
        if plan is not None:
            if plan.trail is not trail:
                trail.extend(plan.start, plan.columns, plan.places)
                plan.trail = trail
        elif frame.past == 0 or length > 1:
            trail.extend(frame.past, *self._layout(self._ids(frame), frame.arguments))
        if rows % max(1, len(trail.columns)):
            raise ReweighError(f"a pass of {rows} rows cannot belong to {len(trail.columns)} prompts")
        repeat = rows // len(trail.columns)
        inputs = frame.arguments if plan is None else plan.inputs
        start, end = (frame.past, frame.past + length) if plan is None else (plan.start, plan.end)
        states = frame.states
        return Glimpse(
            frame.arguments, frame.past, length, repeat, states, logits, trail, cache, inputs, start, end
        )

    def _ids(self, frame: _Frame) -> Tensor:
        ids = frame.arguments.get("input_ids")
        if ids is None:
            raise UnsupportedError(
                "a forward pass had inputs_embeds but no input_ids, so the image's positions cannot be told",
                hint="pass input_ids, or use generate",
            )
        return ids  # type: ignore[no-any-return]

    def _trail(self, frame: _Frame, cache: Any, rows: int) -> Trail:
        plan = self._local.plan
        prompts = len(plan.columns) if plan is not None else rows
        if cache is None:
            return plan.trail if plan is not None and plan.trail is not None else _new_trail(prompts)
        trails: dict[int, Trail] = vars(cache).setdefault(_TRAILS, {})
        if frame.past == 0:
            trails[self._key] = _new_trail(prompts)
        elif self._key not in trails:
            raise UnsupportedError(
                f"the cache holds {frame.past} positions that were not seen by this attachment, "
                "so the evidence of an image among them is unknown",
                hint="fill the cache inside the same attachment's `with` block, or start without a cache",
            )
        trails[self._key].rewind(frame.past)
        return trails[self._key]


def _new_trail(rows: int) -> Trail:
    return Trail([[] for _ in range(rows)], [[] for _ in range(rows)])


def _bound(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, those swallowed by ``**kwargs`` included."""
    if not args:
        return dict(kwargs)
    try:
        bound = dict(signature.bind_partial(*args, **kwargs).arguments)
    except TypeError:
        return dict(kwargs)
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            bound |= bound.pop(parameter.name, {})
    return bound


def _past_length(cache: Any) -> int:
    return int(cache.get_seq_length()) if cache is not None and hasattr(cache, "get_seq_length") else 0


def _refuse(name: str, *_args: Any, **_kwargs: Any) -> None:
    raise UnsupportedError(
        f"{name} packs several sequences into one row and bypasses the edit",
        hint="use generate, batched if you like",
    )
