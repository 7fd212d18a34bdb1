"""Show the passes of an mlx-vlm model to the decoder of the run that is open where they run.

MLX has no hooks, so classes of this one model are replaced while a run is open: the model's own, to see prompts; its
language model's, to see passes; those of its blocks and final norm, to see the residual stream. A prompt that mlx-vlm
reads in chunks is shown as one pass after its last chunk. Several rows, drafts and caches filled elsewhere are refused.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
import torch
from torch import Tensor

from reweigh.engines.base import Pass, Prompt
from reweigh.engines.mlx.model import MlxAnatomy, to_torch
from reweigh.engines.rows import Batch, Row
from reweigh.engines.run import Run, active, opening
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.positions import layout
from reweigh.method.grids import VisualPosition

HOLDER, MARK = "_reweigh_hooks", "_reweigh_batch"
"""Attributes of a model, and of the first entry of a cache that was filled under a run."""
DRAFTED = {"return_hidden", "capture_layer_ids"}
"""Arguments with which mlx-vlm asks for the states that a draft model reads."""
CHANGED = "start a new generation with one `with` block around all of it"
UNDRAFTED = "generate without a draft model"

_lock = threading.RLock()


@dataclass(eq=False)
class Turn:
    """A prompt, from the call that embeds it to the end of its generation.

    Attributes:
        run: The run it belongs to.
        visual: Its visual columns.
        length: Its tokens.
        start: Column of the cache at which it begins, once its first pass runs.
        states: The residual stream of each layer, one tensor per chunk.
    """

    run: Run
    visual: list[VisualPosition]
    length: int
    start: int = -1
    states: dict[int, list[Tensor]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Column after the prompt."""
        return self.start + self.length


class _Local(threading.local):
    """Of a thread: the prompt whose states its pass shows, the one just embedded, and whether that was outside any run."""

    prompt: Turn | None = None
    embedded: Turn | None = None
    outside: bool = False


class MlxHooks:
    """Exchanged classes on one model, shared by all runs that are open on it."""

    def __init__(self, anatomy: MlxAnatomy) -> None:
        self.anatomy = anatomy
        self._open = 0
        self._prompts: weakref.WeakSet[Turn] = weakref.WeakSet()  # those whose cache is alive
        self._exchanged: list[tuple[Any, type]] = []
        self._local = _Local()

    @classmethod
    def of(cls, anatomy: MlxAnatomy) -> MlxHooks:
        """Return the hooks of a model, or new ones."""
        with _lock:
            found: MlxHooks | None = getattr(anatomy.model, HOLDER, None)
            if found is None:
                object.__setattr__(anatomy.model, HOLDER, found := cls(anatomy))
            return found

    @contextmanager
    def passes(self, run: Run) -> Iterator[Run]:
        """Show every pass of this thread or task to a run's decoder.

        While a generation of it may continue, the classes stay exchanged, to refuse that.
        """
        with _lock:
            if not self._exchanged:
                self._install()
            self._open += 1
            run.uses += 1
        try:
            with opening(self.anatomy.model, run):
                yield run
        finally:
            with _lock:
                run.uses -= 1
                self._open -= 1
                if not self._open and not self._prompts:
                    while self._exchanged:
                        module, kind = self._exchanged.pop()
                        object.__setattr__(module, "__class__", kind)
                    object.__delattr__(self.anatomy.model, HOLDER)

    def _install(self) -> None:
        self._exchange(self.anatomy.model, "get_input_embeddings", self._embed)
        self._exchange(self.anatomy.language_model, "__call__", self._call)
        for layer in range(len(self.anatomy.blocks)):
            self._exchange(self.anatomy.exit_of(layer), "__call__", self._keep_stream_of(layer))

    def _exchange(self, module: Any, name: str, around: Callable[..., Any]) -> None:
        """Call ``around(original, *args)`` instead of a method of one module."""
        kind = type(module)
        original = getattr(kind, name)

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return around(lambda *a, **k: original(self, *a, **k), *args, **kwargs)

        made = type(kind.__name__, (kind,), {name: method, "__module__": kind.__module__})
        object.__setattr__(module, "__class__", made)
        self._exchanged.append((module, kind))

    def _keep_stream_of(self, layer: int) -> Callable[..., Any]:
        def exit_of_block(run: Any, stream: Any, *args: Any, **kwargs: Any) -> Any:
            prompt = self._local.prompt
            if prompt is not None and layer in prompt.states:
                prompt.states[layer].append(to_torch(stream))
            return run(stream, *args, **kwargs)

        return exit_of_block

    def _embed(self, call: Any, input_ids: Any = None, pixel_values: Any = None, **more: Any) -> Any:
        """Note a prompt when it is embedded: only this call sees all of it together with its images."""
        features, own = call(input_ids, pixel_values, **more), active(self.anatomy.model)
        self._local.embedded, self._local.outside = None, own is None
        if own is not None:
            rows, length = features.inputs_embeds.shape[:2]
            if rows != 1:
                raise UnsupportedError(
                    f"a prompt of {rows} rows cannot be edited on MLX", hint="generate one row at a time"
                )
            if length != input_ids.shape[1]:
                raise UnsupportedError(
                    f"mlx-vlm makes {length} embeddings of a prompt of {input_ids.shape[1]} tokens, so its image is not "
                    "where its placeholders are",
                    hint="use the transformers engine for this model",
                )
            visual = self._visual(input_ids, {"pixel_values": pixel_values, **more})
            self._local.embedded = Turn(own, visual, length)
        return features

    def _visual(self, input_ids: Any, inputs: Mapping[str, Any]) -> list[VisualPosition]:
        """Return the visual columns of a prompt."""
        given = {name: to_torch(one) if isinstance(one, mx.array) else one for name, one in inputs.items()}
        found = layout(self.anatomy.family, self.anatomy.config, to_torch(input_ids), given)[0]
        if found and given["pixel_values"] is None and given.get("pixel_values_videos") is None:
            raise InputError(
                "the prompt has image placeholders, but no image was given", hint="give image=[...]"
            )
        return found

    def _call(self, call: Any, inputs: Any = None, *args: Any, cache: Any = None, **more: Any) -> Any:
        """Run one pass: keep the stream of a prompt, and edit the logits by which a token is chosen."""
        run = active(self.anatomy.model)
        batch: Batch | None = getattr(cache[0], MARK, None) if cache else None
        if run is None:
            if batch is not None and batch.turn is not None:
                self._check_outside(batch, _offset(cache))
            return call(inputs, *args, cache=cache, **more)
        if more.keys() & DRAFTED:
            raise UnsupportedError("speculative decoding cannot be edited on MLX", hint=UNDRAFTED)
        past, embedded = _offset(cache), more.get("inputs_embeds")
        length = (inputs if embedded is None else embedded).shape[1]
        batch = self._batch_of(run, cache, batch, past)
        prompt: Turn = batch.turn
        if past >= prompt.end and length != 1:
            raise UnsupportedError(
                f"a pass of {length} columns after the prompt cannot be edited on MLX", hint=UNDRAFTED
            )
        self._local.prompt = prompt if past < prompt.end else None
        try:
            output = call(inputs, *args, cache=cache, **more)
        finally:
            self._local.prompt = None
        batch.seen = past + length
        if batch.seen < prompt.end:  # a chunk that is not the last chooses no token
            return output
        logits = to_torch(output.logits[:, -1:] if cache else output.logits)
        edited = self._edit(run, batch, past, logits)
        if edited is None or torch.equal(edited, logits.float()):  # the model's own, bit for bit
            return output
        return replace(output, logits=mx.array(edited.numpy()))

    def _batch_of(self, run: Run, cache: Any, batch: Batch | None, past: int) -> Batch:
        """Return the sequence of a cache; a prompt that was just embedded begins or continues it."""
        prompt = self._local.embedded
        if prompt is not None and prompt.run is not run:
            prompt = None
        if batch is not None and batch.owner != run.decoder.key:
            raise UnsupportedError("this cache was filled under another session", hint=CHANGED)
        if batch is None:
            if past or prompt is None:
                raise UnsupportedError(
                    f"{past} positions of this cache were filled outside this block, so it is unknown what they show",
                    hint="start without a cache (prompt_cache, prompt_cache_state, apc_manager, kv_bits), inside the block",
                )
            batch = Batch(run.decoder.key, [Row()])
            if cache:
                setattr(cache[0], MARK, batch)
        if prompt is not None:
            batch.crop(past)
            prompt.start, prompt.states = past, {layer: [] for layer in run.layers}
            batch.extend(past, [prompt.visual], 1)
            batch.turn, self._local.embedded = prompt, None
            self._prompts.add(prompt)
        return batch

    def _edit(self, run: Run, batch: Batch, past: int, logits: Tensor) -> Tensor | None:
        """Show a whole prompt, or one more token, to the decoder."""
        prompt: Turn = batch.turn
        is_step = past >= prompt.end
        if not is_step and not run.layers <= prompt.states.keys():
            raise UnsupportedError("the settings changed while the prompt was read", hint=CHANGED)
        first = past if is_step else prompt.start
        whole = Prompt(
            run=run,
            inputs={},
            start=prompt.start,
            end=prompt.end,
            generates=True,
            rows=batch.rows,
            batch=batch,
            seen=first,
        )
        forward = Pass(
            prompt=whole,
            rows=batch.rows,
            past=first,
            length=1 if is_step else prompt.length,
            states={} if is_step else {layer: torch.cat(prompt.states[layer], 1) for layer in run.layers},
            logits=logits,
        )
        forward.check_states()
        edited = run.decoder.edit(forward)
        prompt.states.clear()
        return edited

    def _check_outside(self, batch: Batch, past: int) -> None:
        """Refuse the rest of a generation whose block was left; a new prompt on its cache is the base model's."""
        if not self._local.outside and past >= batch.turn.end:
            raise UnsupportedError(
                "the `with` block was left before its generation ended",
                hint="read the whole stream inside the block",
            )
        batch.turn = None


def _offset(cache: Any) -> int:
    """Return how many columns a cache holds."""
    offset = getattr(cache[0], "offset", None) if cache else 0
    if not isinstance(offset, int):
        raise UnsupportedError(
            f"a cache of {type(cache[0]).__name__} holds several rows, which cannot be edited on MLX",
            hint="use generate or stream_generate, one prompt at a time",
        )
    return offset
