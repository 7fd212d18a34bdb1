"""A second forward pass beside the main one, with a cache, positions and an attention mask of its own.

Contrastive methods feed it the tokens of the main pass; OPERA and HALC, which are decoding loops, run all their passes on
it. It never shares a cache, a position offset or encoded features with the main pass.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from reweigh.engines.base import Pass
from reweigh.engines.run import suspended
from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy


class Branch:
    """B rows whose cache holds the branch's prompt and the tokens fed since.

    Attributes:
        position: The last position (..., B, 1) given to the language model.
        mask: Attention mask (B, n).
        fed: Main columns that the branch has followed.
        prompt_end: Main column at which the prompt ended.
    """

    def __init__(self, anatomy: Anatomy, cache: Any, position: Tensor, mask: Tensor, end: int) -> None:
        self.anatomy = anatomy
        self.cache = cache
        self.position = position
        self.mask = mask
        self.fed = self.prompt_end = end

    def step(self, ids: Tensor, keep: int = 1, seen: Tensor | None = None) -> Tensor:
        """Feed tokens (B, n), of which ``seen`` are not padding; return the last logits (B, keep, V)."""
        mask = torch.ones_like(ids) if seen is None else seen
        mask = mask.to(self.mask.device, self.mask.dtype)
        position = self.position + mask.cumsum(dim=1).to(self.position.device)
        self.mask = torch.cat([self.mask, mask], dim=1)
        language_model = self.anatomy.language_model
        with own_offsets(self.anatomy):
            output = language_model(
                input_ids=ids,
                attention_mask=self.mask,
                position_ids=position,
                past_key_values=self.cache,
                use_cache=True,
                **_keep(language_model, keep),
            )
        self.position = position[..., -1:]
        self.fed += ids.shape[1]
        return output.logits[:, -keep:]  # type: ignore[no-any-return]

    def peek(self, ids: Tensor) -> Tensor:
        """Feed tokens (B, n) and forget them again; return the last logits (B, 1, V)."""
        logits = self.step(ids)
        self.crop(ids.shape[1])
        return logits

    def crop(self, columns: int) -> None:
        """Forget the last columns."""
        if columns:
            self.cache.crop(-columns)
            seen = self.mask[:, -columns:].sum(dim=1, keepdim=True)
            self.position = self.position - seen.to(self.position.device)
            self.mask = self.mask[:, :-columns]
            self.fed -= columns

    def reorder(self, rows: Tensor) -> None:
        """Follow the main cache into other rows."""
        self.cache.reorder_cache(rows)
        self._select(rows)

    def repeat(self, times: int) -> None:
        """Follow the main cache into ``times`` copies of each row."""
        if times > 1:
            self.cache.batch_repeat_interleave(times)
            self._select(torch.arange(len(self.mask)).repeat_interleave(times))

    def copy(self, rows: Tensor) -> Branch:
        """Return a new branch with some of the rows."""
        made = copy.copy(self)
        made.cache = new_cache(self.anatomy)
        for index, layer in enumerate(self.cache.layers):
            made.cache.update(layer.keys[rows], layer.values[rows], index)
        made._select(rows)
        return made

    def _select(self, rows: Tensor) -> None:
        self.position = self.position.index_select(-2, rows.to(self.position.device))
        self.mask = self.mask[rows.to(self.mask.device)]

    def __deepcopy__(self, memo: dict[int, Any]) -> Branch:
        made = copy.copy(self)  # not the model
        made.cache = copy.deepcopy(self.cache, memo)
        return made


def read_prompt(anatomy: Anatomy, inputs: dict[str, Any], end: int) -> tuple[Branch, Tensor]:
    """Read a prompt that stands for the first ``end`` main columns; return its branch and last logits (B, 1, V).

    Inputs with ``inputs_embeds`` also have ``input_ids`` of the same shape, for the positions only.
    """
    inputs = dict(inputs)
    module = anatomy.model if "pixel_values" in inputs else anatomy.language_model
    ids, mask = inputs["input_ids"], inputs.pop("attention_mask", None)
    mask = torch.ones_like(ids) if mask is None else mask
    cache = new_cache(anatomy)
    with own_offsets(anatomy):
        # as generate would number this prompt: padding-aware, three-dimensional where needed
        given = {**inputs, "attention_mask": mask}
        position = anatomy.language_model._prepare_position_ids_for_generation(ids, given)
        if "inputs_embeds" in inputs:
            del inputs["input_ids"]
        output = module(
            **inputs,
            attention_mask=mask,
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
            **_keep(anatomy.language_model, 1),
        )
    return Branch(anatomy, cache, position[..., -1:].contiguous(), mask, end), output.logits[:, -1:]


@contextmanager
def beside(anatomy: Anatomy) -> Iterator[None]:
    """Run passes over other sequences, e.g. a generation of the decoder's own, without disturbing the main one."""
    with suspended(anatomy.model), own_offsets(anatomy):
        yield


@contextmanager
def own_offsets(anatomy: Anatomy) -> Iterator[None]:
    """Run passes without the rotary offsets that a model keeps for the main pass."""
    holders = (anatomy.model, anatomy.model.base_model)
    main = {part: part.rope_deltas for part in holders if "rope_deltas" in vars(part)}
    for part in main:
        part.rope_deltas = None
    try:
        yield
    finally:
        for part, value in main.items():
            part.rope_deltas = value


def new_cache(anatomy: Anatomy) -> Any:
    """Return a growing cache that can be cropped: windowed layers keep all columns, and only their mask is windowed."""
    config = anatomy.language_model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    plain = kinds <= {"full_attention", "sliding_attention", "chunked_attention"}
    return DynamicCache() if plain else DynamicCache(config=config)


def _keep(module: Any, columns: int) -> dict[str, int]:
    known = inspect.signature(module.forward).parameters
    return {"logits_to_keep": columns} if "logits_to_keep" in known else {}


# For decoding loops


def prefill(
    anatomy: Anatomy, model: Any, ids: Tensor, kwargs: dict[str, Any], why: str
) -> tuple[Branch, Tensor]:
    """Run the first pass of a decoding loop; return its branch and the prompt's logits (B, K, V).

    ``kwargs`` is what ``generate`` hands to the loop; ``why`` says why a kept cache cannot be continued.
    """
    cache = kwargs.pop("past_key_values", None)
    if cache is not None and cache.get_seq_length():
        raise UnsupportedError(
            f"{why}, so a kept cache cannot be continued", hint="start without past_key_values"
        )
    cache = new_cache(anatomy)
    kwargs = {**kwargs, "past_key_values": cache, "use_cache": True}
    inputs = model.prepare_inputs_for_generation(ids, is_first_iteration=True, **kwargs)
    output = model(**inputs, return_dict=True)
    mask, position = kwargs.get("attention_mask"), inputs.get("position_ids")
    mask = torch.ones_like(ids) if mask is None else mask
    if position is None:
        position = torch.arange(ids.shape[1], device=ids.device)[None]
    last = position[..., -1:].expand(*position.shape[:-2], ids.shape[0], 1)
    return Branch(anatomy, cache, last, mask, cache.get_seq_length()), output.logits


def prompt_pass(anatomy: Anatomy) -> Pass:
    """Return the pass that read a decoding loop's prompt; what later passes see is noted in its ``scratch``."""
    forward = HookManager.of(anatomy).forward
    if forward is None:
        raise InputError("generate was called outside the decoder's `with` block")
    return forward


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
