"""Find the parts of a loaded mlx-vlm model, and identify it as transformers would identify the same weights.

Values pass between MLX and PyTorch exactly, in every float type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from mlx.utils import tree_flatten
from torch import Tensor, nn

from reweigh.engines.mlx.ports import Port, computed_images, computed_settings, port_of
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.catalogue import family_of
from reweigh.families.identity import SPREAD, Watch, bare_name, describe, empty_model, match_names
from reweigh.families.positions import placeholder_ids
from reweigh.families.processor import tokenizer_of
from reweigh.families.weights import spread_indices
from reweigh.tables.key import SAMPLES, ModelKey, Sampled

FLOATS = {mx.float32: torch.float32, mx.float16: torch.float16, mx.bfloat16: torch.bfloat16}


def to_torch(array: mx.array) -> Tensor:
    """Copy an array to the CPU; waits for MLX to compute it."""
    wide = array.astype(mx.float32) if array.dtype == mx.bfloat16 else array  # NumPy has no bfloat16
    values = torch.from_numpy(np.array(wide))
    return values.to(FLOATS.get(array.dtype, values.dtype))


def to_mlx(tensor: Tensor, dtype: Any) -> mx.array:
    """Convert a tensor to a float type of MLX."""
    return mx.array(tensor.float().numpy()).astype(dtype)


class Through(nn.Module):
    """Call a module of an mlx-vlm model with tensors, for the lens.

    Args:
        run: The MLX module or function.
        dtype: Float type in which the model computes.
        rows: Rows of a head.
        width: Width of the states.
    """

    def __init__(self, run: Any, dtype: Any, rows: int, width: int) -> None:
        super().__init__()
        self.run, self.dtype = run, dtype
        self.out_features, self.in_features = rows, width

    def forward(self, states: Tensor) -> Tensor:
        """Return what MLX computes from the states."""
        return to_torch(self.run(to_mlx(states, self.dtype)))


@dataclass(frozen=True, eq=False, kw_only=True)
class MlxAnatomy(Anatomy):
    """The parts of one mlx-vlm model; norm and head take tensors.

    Attributes:
        checkpoint: The configuration of its checkpoint, as transformers reads it.
        port: How mlx-vlm computes its family.
    """

    checkpoint: Any
    port: Port

    @property
    def config(self) -> Any:
        """The configuration of the checkpoint."""
        return self.checkpoint

    def exit_of(self, layer: int) -> Any:
        """Return the MLX module that receives a block's output."""
        return self.norm.run if layer == len(self.blocks) - 1 else self.blocks[layer + 1]

    def identify(self, processor: Any) -> ModelKey:
        """Return the identity that transformers gives the same weights, with the settings that mlx-vlm really uses."""
        empty = empty_model(self.checkpoint)
        names = empty.model.state_dict()
        sampled = _sampled(self.model, names)
        samples, _ = match_names(empty, sampled)  # what is missing shows as a difference
        known = set(map(bare_name, names))
        samples |= {name: one for name, one in sampled.items() if name not in known}  # scales, adapters
        found = describe(empty, processor, samples, model_id=str(checkpoint_folder(processor)))
        architecture = found.architecture + (
            "" if self.port.apart is None else f" of mlx-vlm ({self.port.apart})"
        )
        settings = computed_settings(self.port, self.model.config, found.config)
        return replace(
            found, architecture=architecture, config=settings, images=computed_images(found.images)
        )

    def watch(self, processor: Any) -> MlxWatch:
        """Return what notices replaced weights or settings."""
        return MlxWatch(self.model, processor)


class MlxWatch(Watch):
    """Notices replaced weights and changed settings, but not values written into an array."""

    def _named_parts(self) -> list[tuple[str, Any]]:
        self._arrays = self._weights()  # kept alive
        return [("", self.model)]

    def _count(self) -> list[dict[str, Any]]:
        return [{name: id(array) for name, array in self._weights().items()}]

    def _weights(self) -> dict[str, Any]:
        return dict(tree_flatten(self.model.parameters()))


def find_anatomy(model: Any, processor: Any) -> MlxAnatomy:
    """Find the parts of an mlx-vlm model, or say why it is not served."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(checkpoint_folder(processor))
    port = port_of(config)
    language_model = model.language_model
    holder = getattr(language_model, "model", language_model)
    tied = "lm_head" not in language_model
    head = holder.embed_tokens if tied else language_model.lm_head
    width, dtype = holder.norm.weight.shape[0], holder.norm.weight.dtype
    return MlxAnatomy(
        model=model,
        family=family_of(config),
        language_model=language_model,
        blocks=holder.layers,
        norm=Through(holder.norm, dtype, width, width),
        head=Through(head.as_linear if tied else head, dtype, head.weight.shape[0], width),
        image_tokens=tuple(sorted(placeholder_ids(config))),
        checkpoint=config,
        port=port,
    )


def checkpoint_folder(processor: Any) -> Path:
    """Return the folder that a processor was loaded from; an mlx-vlm model does not remember its own."""
    if processor is None:
        raise InputError("an MLX model needs its processor", hint="attach(*mlx_vlm.load(...), table=...)")
    folder = Path(str(getattr(tokenizer_of(processor), "name_or_path", "")))
    if not (folder / "config.json").is_file():
        raise UnsupportedError(
            f"the processor does not say which checkpoint it belongs to ({str(folder)!r} has no config.json)",
            hint="load model and processor together: mlx_vlm.load(FOLDER_OR_HUB_ID)",
        )
    return folder


def _sampled(model: Any, wanted: Mapping[str, Any]) -> dict[str, Sampled]:
    """Sample every weight, by plain name; convolution kernels get the axis order of PyTorch."""
    shapes = {bare_name(name): tuple(tensor.shape) for name, tensor in wanted.items()}
    found = {}
    for name, array in tree_flatten(model.parameters()):
        own = bare_name(name)
        if own not in shapes:
            own = own.replace("vision_tower.", "visual.", 1)  # Qwen
        if array.ndim > 3 and array.shape != shapes.get(own):
            array = array.moveaxis(-1, 1)
        index = mx.array(spread_indices(array.size, SPREAD).numpy())
        values = to_torch(array.reshape(-1)[index]).to(torch.float32).numpy()
        found[own] = values[:SAMPLES], array.size
    return found
