"""What the hooks on a model do: show each forward pass to the decoder of the run that it belongs to.

A decoder gets a ``Pass`` with the raw logits, the residual streams it reads and its rows, and returns new
logits or ``None``. The rows travel on the key-value cache: they live as long as the cached positions do, and survive
a cache that is copied, cropped or reordered. Knows nothing about evidence, tables or any decoder.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.engines.base import PENDING, Decoder, Pass, Prompt
from reweigh.engines.rows import Batch, Row
from reweigh.engines.run import Run, active, runs, suspended
from reweigh.engines.transformers.arguments import (
    BATCH,
    batch_on,
    bound,
    brings_image,
    check_arguments,
    leave_batch,
    missing_image,
    past_length,
    read_prompt,
    token_ids,
)
from reweigh.engines.verify import verify_edit
from reweigh.errors import ReweighError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.positions import layout

COMPILED_INSIDE = "attach to the compiled model, not to the one inside it"
NOTHING: frozenset[int] = frozenset()


class _Local(threading.local):
    """The prompt and pass that one thread runs, the blocks read in it, and ids that an outer model's forward was given."""

    prompt: Prompt | None = None
    forward: Pass | None = None
    layers: frozenset[int] = NOTHING
    outer_ids: Tensor | None = None


class ForwardHooks:
    """The forward passes of one model, as its hooks see them.

    Args:
        holding: Keeps a run and its hooks for as long as a generation needs them.

    Attributes:
        exits: The module after each block that is read.
    """

    def __init__(self, anatomy: Anatomy, holding: Callable[[Run], AbstractContextManager[None]]) -> None:
        self.anatomy = anatomy
        self.exits: dict[int, nn.Module] = {}
        self._holding = holding
        self._local = _Local()
        self._signature = inspect.signature(anatomy.language_model.forward)

    def __deepcopy__(self, memo: Any) -> ForwardHooks:
        return self  # hooks on a copied model find that they are on another model, and do nothing

    @property
    def forward(self) -> Pass | None:
        """The pass that this thread is running; for a decoder with its own loop, the latest one."""
        return self._local.forward

    @forward.setter
    def forward(self, forward: Pass | None) -> None:
        self._local.forward = forward

    def is_active(self) -> bool:
        """Whether passes of this thread or task belong to a run."""
        return active(self.anatomy.model) is not None

    def generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stand in for ``generate`` where ``is_active``."""
        run: Any = active(self.anatomy.model)
        if getattr(kwargs.get("generation_config"), "is_assistant", False):
            # a draft, written without the image; the passes that verify it are edited
            with suspended(self.anatomy.model):
                return original(*args, **kwargs)
        decoder = run.decoder
        kwargs = {**decoder.generation, **kwargs}
        if decoder.loop is not None:
            kwargs.setdefault("custom_generate", decoder.loop)
        prompt = read_prompt(self.anatomy, run, original, args, kwargs)
        outer = self._local.prompt, self._local.forward
        self._local.prompt = prompt
        try:
            with self._holding(run):  # the caller's block may be left before this generation ends
                result = original(*args, **kwargs)
        finally:
            self._local.prompt, self._local.forward = outer
        if prompt is not None and prompt.passes == 0 and any(prompt.visual):
            raise UnsupportedError(
                f"{type(self.anatomy.model).__name__}.generate never called the model's forward, "
                "so its output was not edited",
                hint="if it only wraps another model, attach to that one; otherwise this way of generating is not supported",
            )
        if prompt is not None and prompt.batch is not None:
            decoder.generated(prompt.batch)
        return result

    def outer(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the ids of a delegating family's direct forward: its inner language model will not see them."""
        run, prompt = active(self.anatomy.model), self._local.prompt
        if module is not self.anatomy.model or run is None or (prompt is not None and prompt.run is run):
            return
        given = bound(inspect.signature(self.anatomy.model.forward), args, kwargs)
        self._local.outer_ids = given.get("input_ids")

    def outer_done(self, module: nn.Module, _args: tuple[Any, ...], _output: Any) -> None:
        """Refuse a forward whose inner language model left the ids: it ran in a graph without hooks."""
        if module is not self.anatomy.model or not self.is_active():
            return
        skipped, self._local.outer_ids = self._local.outer_ids, None
        if skipped is not None:
            raise UnsupportedError(
                f"the hooks on {type(self.anatomy.language_model).__name__} inside {type(module).__name__} were not "
                "called, so its output was not edited",
                hint=COMPILED_INSIDE,
            )

    def before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Find a pass's run and the rows it continues, ahead of the language model.

        Returns:
            Other arguments for the language model, where it would compute some blocks for its last columns only.
        """
        anatomy = self.anatomy
        run, is_suspended = runs.get().get(id(anatomy.model), (None, False))
        if module is not anatomy.language_model or is_suspended:
            return None
        self._local.forward = None  # clear what a failed pass left behind
        if run is None or not run.uses:
            return None
        prompt = self._local.prompt
        if prompt is not None and prompt.run is not run:  # of a generation that another run interrupts
            prompt = None
        arguments = bound(self._signature, args, kwargs) if args else kwargs
        outer_ids, self._local.outer_ids = self._local.outer_ids, None
        if outer_ids is not None and arguments.get("input_ids") is None:
            arguments = {**arguments, "input_ids": outer_ids}
        batch: Any = None if prompt is None else prompt.batch
        cache, ids = arguments.get("past_key_values"), arguments.get("input_ids")
        if (
            prompt is None
            or not prompt.passes
            or batch.seen < prompt.end
            or ids is None
            or ids.shape != (len(batch.rows), 1)
            or cache is None
            or vars(cache).get(BATCH) is not batch
            or not (isinstance(held := cache.get_seq_length(), Tensor) or held == batch.seen)
        ):
            prompt, past, length = self._look_up(run, prompt, arguments)
        else:  # the next token of a running generation: nothing has to be looked up
            past, length = batch.seen, 1
        in_prompt = past < prompt.end
        forward = Pass(prompt=prompt, rows=prompt.batch.rows, past=past, length=length, arguments=arguments)
        prompt.scratch = None
        if in_prompt and forward.new() and not brings_image(arguments):
            raise missing_image(prompt)
        if type(run.decoder).before is not Decoder.before:
            with suspended(anatomy.model):
                run.decoder.before(forward)
        reads = in_prompt or run.decoder.reads_every_step
        self._local.layers = run.layers if reads else NOTHING
        self._local.forward = forward
        kept = kwargs.get("logits_to_keep")
        if anatomy.shares_keys and self._local.layers and isinstance(kept, int) and kept and forward.new():
            first, last = max(0, length - kept), length
            return args, {**kwargs, "logits_to_keep": torch.arange(first, last)}
        return None

    def _look_up(
        self, run: Run, prompt: Prompt | None, arguments: Mapping[str, Any]
    ) -> tuple[Prompt, int, int]:
        """Find or begin the batch that a pass continues; return its prompt, the columns before it, and its own."""
        rows, length = check_arguments(arguments)
        cache, owner = arguments.get("past_key_values"), run.decoder.key
        past = past_length(cache, prompt.batch if prompt is not None and prompt.passes else None)
        batch = _continued(owner, prompt, cache, past, length)
        if prompt is not None and prompt.batch is None:
            prompt.batch = batch or Batch(owner, [Row(index=row) for row in range(len(prompt.visual))])
            prompt.rows = prompt.batch.extend(prompt.start, prompt.visual, rows)
            batch, prompt.batch.turn = prompt.batch, prompt.number
        elif batch is None or (length > 1 and (prompt is None or batch.turn != prompt.number)):
            # a pass outside generate, or beside its prompt, such as the image-free branch of guidance
            batch = batch or Batch(owner, [Row(index=row) for row in range(rows)])
            visual = layout(self.anatomy.family, self.anatomy.config, token_ids(arguments), arguments)
            batch.extend(past, visual, rows)
        if rows != len(batch.rows):
            raise ReweighError(f"a pass of {rows} rows cannot continue {len(batch.rows)} rows")
        if prompt is None:
            prompt = Prompt(run=run, inputs=arguments, start=past, end=past + length)
        if batch is not prompt.batch:
            prompt = replace(prompt, batch=batch, rows=batch.rows)
        prompt.seen = batch.seen
        return prompt, past, length

    def capture(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a block's output, ahead of what follows it."""
        forward = self._local.forward
        if forward is None or forward.logits is not PENDING or layer not in self._local.layers:
            return
        if module is not self.exits.get(layer):
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
        """Give the pass to the decoder, and its logits to the caller, after the language model."""
        forward = self._local.forward
        if forward is None or forward.logits is not PENDING or module is not self.anatomy.language_model:
            return None
        prompt = forward.prompt
        decoder, batch, in_prompt = prompt.run.decoder, prompt.batch, forward.past < prompt.end
        try:
            if self._local.layers or in_prompt:
                self._check_output(forward, output)
            forward.logits = output.logits
            if decoder.runs_passes:
                with suspended(self.anatomy.model):
                    logits = decoder.edit(forward)
            else:
                logits = decoder.edit(forward)
        finally:
            if decoder.loop is None:
                self._local.forward = None
        batch.seen = max(batch.seen, forward.past + forward.length)
        prompt.passes += 1
        if logits is None:
            return None
        shapes = (getattr(logits, "shape", None), forward.logits.shape, in_prompt)
        if shapes not in decoder.verified:
            verify_edit(decoder, forward.logits, logits)
            decoder.verified.add(shapes)
        output.logits = logits
        return output

    def _check_output(self, forward: Pass, output: Any) -> None:
        """Refuse a pass whose logits or states cannot be read; leave the batch on its cache, which may be new."""
        if not hasattr(output, "logits"):
            raise UnsupportedError(
                f"{type(self.anatomy.language_model).__name__} returned a {type(output).__name__} without named logits",
                hint="leave return_dict at True",
            )
        if len(forward.states) < len(self._local.layers):
            missing = min(self._local.layers - forward.states.keys())
            raise UnsupportedError(
                f"the hook after block {missing} of {type(self.anatomy.model).__name__} was not called, so its "
                "stream cannot be read",
                hint=f"{COMPILED_INSIDE}; a pass that skips blocks is not supported",
            )
        forward.check_states()
        cache = forward.arguments.get("past_key_values")
        cache = getattr(output, "past_key_values", None) if cache is None else cache
        if cache is not None:
            leave_batch(cache, forward.prompt.batch)


def _continued(owner: int, prompt: Prompt | None, cache: Any, past: int, length: int) -> Batch | None:
    """Return the batch of the columns before this pass, ``None`` if there are none."""
    if cache is None:  # without a cache each step of generate repeats its prompt
        again = prompt is not None and prompt.batch is not None and length >= prompt.end
        return prompt.batch if prompt is not None and again else None
    if past == 0:
        return None
    batch = batch_on(cache)
    unknown = past if batch is None or batch.owner != owner else past - batch.seen
    if batch is None or unknown > 0:
        raise UnsupportedError(
            f"the cache holds {past} positions, {unknown} of them not seen by this session, so the evidence of "
            "an image among them is unknown",
            hint="fill the cache inside the same session's `with` block, or start without a cache",
        )
    batch.crop(past)
    return batch
