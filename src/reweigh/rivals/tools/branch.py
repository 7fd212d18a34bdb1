"""A second forward pass beside the main one, with a cache, positions and an attention mask of its own.

The branch starts when the main pass has read the prompt and is then fed the same tokens. Its state travels with the main
pass's batch and follows when the main cache is cropped, reordered by beams, or copied. It never shares a cache, a position
offset or encoded features with the main pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.runtime.context import suspended
from reweigh.runtime.decoder import Pass


@dataclass(eq=False)
class BranchState:
    """The state of one branch: B rows whose cache holds the branch's prompt and the tokens fed since.

    Attributes:
        position: The last position (..., B, 1) given to the language model.
        mask: Attention mask (B, n).
        fed: Main columns that the branch has followed.
        prompt_end: Main column at which the prompt ended.
    """

    cache: Any
    position: Tensor
    mask: Tensor
    fed: int
    prompt_end: int

    def crop(self, columns: int) -> None:
        """Forget the last columns."""
        if columns:
            self.cache.crop(-columns)
            self.position = self.position - columns
            self.mask = self.mask[:, :-columns]
            self.fed -= columns

    def reorder(self, rows: Tensor) -> None:
        """Follow the main cache into other rows."""
        self.cache.reorder_cache(rows)
        self.position = self.position.index_select(-2, rows.to(self.position.device))
        self.mask = self.mask[rows.to(self.mask.device)]

    def repeat(self, times: int) -> None:
        """Follow the main cache into ``times`` copies of each row."""
        if times > 1:
            self.cache.batch_repeat_interleave(times)
            self.position = self.position.repeat_interleave(times, dim=-2)
            self.mask = self.mask.repeat_interleave(times, dim=0)


class Runner:
    """Starts and steps branches of one model; also runs single passes for a decoding loop."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._holders = [part for part in anatomy.model.modules() if "rope_deltas" in vars(part)]

    def start(self, inputs: dict[str, Any], end: int) -> tuple[BranchState, Tensor]:
        """Read a prompt that stands for the first ``end`` main columns; return its state and last logits (B, 1, V).

        Inputs with ``inputs_embeds`` also have ``input_ids`` of the same shape, for the positions only.
        """
        inputs = dict(inputs)
        module = self.anatomy.model if "pixel_values" in inputs else self.anatomy.language_model
        ids, mask = inputs["input_ids"], inputs.pop("attention_mask", None)
        mask = torch.ones_like(ids) if mask is None else mask
        cache = new_cache(self.anatomy)
        with self._own_offsets():
            position = positions(self.anatomy, inputs, mask)
            if "inputs_embeds" in inputs:
                del inputs["input_ids"]
            output = module(
                **inputs,
                attention_mask=mask,
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
                **_keep(self.anatomy.language_model, 1),
            )
        return BranchState(cache, position[..., -1:].contiguous(), mask, end, end), output.logits[:, -1:]

    def prefill(
        self, model: Any, ids: Tensor, kwargs: dict[str, Any], why: str
    ) -> tuple[BranchState, Tensor]:
        """Run the first pass of a decoding loop; return its state and the prompt's logits (B, K, V).

        ``kwargs`` is what ``generate`` hands to the loop; ``why`` says why a kept cache cannot be continued.
        """
        cache = kwargs.pop("past_key_values", None)
        if cache is not None and cache.get_seq_length():
            raise UnsupportedError(
                f"{why}, so a kept cache cannot be continued", hint="start without past_key_values"
            )
        kwargs = {**kwargs, "past_key_values": new_cache(self.anatomy), "use_cache": True}
        inputs = model.prepare_inputs_for_generation(ids, is_first_iteration=True, **kwargs)
        output = model(**inputs, return_dict=True)
        mask, position = kwargs.get("attention_mask"), inputs.get("position_ids")
        mask = torch.ones_like(ids) if mask is None else mask
        if position is None:
            position = torch.arange(ids.shape[1], device=ids.device)[None]
        last = position[..., -1:].expand(*position.shape[:-2], ids.shape[0], 1)
        cache = kwargs["past_key_values"]
        end = cache.get_seq_length()
        return BranchState(cache, last, mask, end, end), output.logits

    def prompt_pass(self) -> Pass:
        """Return the pass that read a decoding loop's prompt; what later passes see is noted in its ``scratch``."""
        forward = HookManager.of(self.anatomy).forward
        if forward is None:
            raise InputError("generate was called outside the decoder's `with` block")
        return forward

    def rows(self, state: BranchState, rows: Tensor) -> BranchState:
        """Copy some rows of a state into a new one."""
        cache = new_cache(self.anatomy)
        for index, layer in enumerate(state.cache.layers):
            cache.update(layer.keys[rows], layer.values[rows], index)
        position = state.position.index_select(-2, rows)
        return BranchState(cache, position, state.mask[rows], state.fed, state.prompt_end)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Run passes over other sequences, e.g. a generation of the decoder's own, without disturbing the main one."""
        with suspended(self.anatomy.model), self._own_offsets():
            yield

    def peek(self, state: BranchState, ids: Tensor) -> Tensor:
        """Feed tokens (B, n) and forget them again; return the last logits (B, 1, V)."""
        logits = self.step(state, ids)
        state.crop(ids.shape[1])
        return logits

    def step(self, state: BranchState, ids: Tensor, keep: int = 1) -> Tensor:
        """Feed tokens (B, n); return the last logits (B, keep, V)."""
        position = state.position + torch.arange(1, ids.shape[1] + 1, device=state.position.device)
        state.mask = torch.cat([state.mask, state.mask.new_ones(ids.shape)], dim=1)
        with self._own_offsets():
            output = self.anatomy.language_model(
                input_ids=ids,
                attention_mask=state.mask,
                position_ids=position,
                past_key_values=state.cache,
                use_cache=True,
                **_keep(self.anatomy.language_model, keep),
            )
        state.position = position[..., -1:]
        state.fed += ids.shape[1]
        return output.logits[:, -keep:]  # type: ignore[no-any-return]

    @contextmanager
    def _own_offsets(self) -> Iterator[None]:
        """Run passes without the rotary offsets that the model keeps for the main pass."""
        main = [part.rope_deltas for part in self._holders]
        for part in self._holders:
            part.rope_deltas = None
        try:
            yield
        finally:
            for part, value in zip(self._holders, main, strict=True):
                part.rope_deltas = value


class Branch:
    """A branch beside each main sequence.

    Args:
        make: Builds the branch's prompt inputs from the pass in which the main prompt is complete.
        key: Name of its state in the batch.
    """

    def __init__(self, anatomy: Anatomy, make: Callable[[Pass], dict[str, Any]], key: str) -> None:
        self.make = make
        self.key = key
        self.runner = Runner(anatomy)

    def logits(self, forward: Pass) -> Tensor | None:
        """Return the branch's logits (B, n, V) for the last columns of this pass; ``None`` inside a chunked prompt.

        One column where the prompt ends in this pass, all K columns of a later pass.
        """
        if forward.past + forward.length < forward.end:
            return None
        state: BranchState | None = forward.batch.branches.get(self.key)
        found, columns = [], forward.logits.shape[1]
        if state is None:
            state, logits = self._start(forward)
            found.append(logits)
            forward.batch.branches[self.key] = state
        else:
            self._rewind(state, forward)
        rest = self._tokens(forward)[:, state.fed - forward.past :]
        if rest.shape[1]:  # also behind a prompt that was read together with a draft of its answer
            found.append(self.runner.step(state, rest, min(rest.shape[1], columns)))
        if not found:
            raise UnsupportedError("a pass gave the second branch nothing new to read")
        return torch.cat(found, dim=1)[:, -columns:].to(forward.logits.device)

    def _start(self, forward: Pass) -> tuple[BranchState, Tensor]:
        if forward.start:
            raise UnsupportedError(
                "the kept cache was filled before an image was seen, so a second branch cannot be continued",
                hint="start a new conversation inside the decoder's `with` block",
            )
        state, logits = self.runner.start(self.make(forward), forward.end)
        times = len(forward.rows) // len(logits)  # beams; the branch has read each prompt once
        state.repeat(times)
        return state, logits.repeat_interleave(times, dim=0)

    def _rewind(self, state: BranchState, forward: Pass) -> None:
        """Bring the branch back to where this pass begins."""
        rows = forward.logits.shape[0]
        if len(state.mask) != rows:
            raise UnsupportedError(
                f"the second branch has {len(state.mask)} rows, but this pass has {rows}",
                hint="continue a kept cache with the number of rows it was filled with",
            )
        if forward.start >= state.prompt_end and forward.new():
            raise UnsupportedError(
                "the continued conversation shows a new image, which the second branch cannot take in",
                hint="start a new conversation with all the images",
            )
        target = state.prompt_end if forward.cache is None else min(state.fed, forward.past)
        if target < state.prompt_end:
            raise UnsupportedError(f"the main cache was cropped into its prompt, to {target} columns")
        # without a main cache beams cannot be followed: what they generated is read again
        state.crop(state.fed - target)

    def _tokens(self, forward: Pass) -> Tensor:
        ids = forward.arguments.get("input_ids")
        if ids is None:  # the prompt came as embeddings; the branch has read it from its own inputs
            return torch.empty(forward.logits.shape[0], forward.length, dtype=torch.int64)
        return ids  # type: ignore[no-any-return]


def positions(anatomy: Anatomy, inputs: dict[str, Any], mask: Tensor) -> Tensor:
    """Return the positions that ``generate`` would give this prompt: padding-aware, three-dimensional where needed."""
    prepare = getattr(anatomy.language_model, "_prepare_position_ids_for_generation", None)
    if prepare is None:
        return (mask.long().cumsum(-1) - 1).clamp_min(0)
    return prepare(inputs["input_ids"], {**inputs, "attention_mask": mask})  # type: ignore[no-any-return]


def new_cache(anatomy: Anatomy) -> Any:
    """Return a growing cache that can be cropped: windowed layers keep all columns, and only their mask is windowed."""
    config = anatomy.language_model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    plain = kinds <= {"full_attention", "sliding_attention", "chunked_attention"}
    return DynamicCache() if plain else DynamicCache(config=config)


def _keep(module: Any, columns: int) -> dict[str, int]:
    known = inspect.signature(module.forward).parameters
    return {"logits_to_keep": columns} if "logits_to_keep" in known else {}


def after_prompts(prompts: Tensor, answers: Sequence[Sequence[int] | Tensor], config: Any) -> Tensor:
    """Return the answers of a decoding loop as ``generate`` does: each after its prompt, padded to one length.

    Args:
        prompts: Prompts (B, T); with more answers than prompts, consecutive answers share one.
        config: The generation settings, which say what to pad with.
    """
    pad = config._pad_token_tensor
    if pad is None:
        pad = config._eos_token_tensor[0] if config._eos_token_tensor is not None else -1
    made = prompts.new_full((len(answers), max(map(len, answers))), int(pad))
    for row, answer in enumerate(answers):
        made[row, : len(answer)] = torch.as_tensor(answer, dtype=made.dtype, device=made.device)
    return torch.cat([prompts.repeat_interleave(len(answers) // len(prompts), dim=0), made], dim=1)
