"""Notice that a model changed after it was identified: weights written to or replaced, adapters switched, settings changed.

Cheap enough for once a generation: settings are read as they stand, and of weights a strided sample, gathered in one
operation for each type and device. Weights that accelerate keeps on the disk, and packed integers of quantised layers,
are watched through their modules only; so is what a layer took from the configuration when it was built.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from reweigh.families.settings import current_settings
from reweigh.families.weights import active_adapters, adapter_layers, plain_name, weight_stores
from reweigh.families.wrappers import unwrap

SAMPLED = 16
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Weight(NamedTuple):
    name: str
    store: Any  # the dict, or accelerate's map, that holds the tensor under `key`
    key: str
    tensor: Tensor
    address: int
    version: int | None  # inference tensors count none


class _Group:
    """Samples of one type on one device: views into the weights, and what they held."""

    def __init__(self, names: list[str], views: list[Tensor]) -> None:
        self.names = names
        self._views = views
        self._values = torch.cat(views)

    def changed(self) -> str | None:
        """The first weight whose sample is no longer what it was."""
        now = torch.cat(self._views)
        if torch.equal(now, self._values):
            return None
        ends = itertools.accumulate(len(view) for view in self._views)
        for name, view, end in zip(self.names, self._views, ends, strict=True):
            own = slice(end - len(view), end)
            if not torch.equal(now[own], self._values[own]):
                return name
        return None


class Watch:
    """Remembers a model and its processor as they are; `changed` tells whether they still are.

    Catches whatever replaces a weight or writes to it through its parameter, to the last element, and writes through
    ``.data`` that reach one of some 16 elements spread over the tensor. Catches any change of a setting that shapes
    evidence, the configuration's as well as the image processor's.
    """

    def __init__(self, model: Any, processor: Any | None = None) -> None:
        self.model: nn.Module = unwrap(model)[0]
        self.processor = processor
        self._settings = self._current_settings()
        modules = list(self.model.named_modules())
        self._parts = [(path, module, tuple(module._modules.values())) for path, module in modules]
        self._adapters = [(path, layer, active_adapters(layer)) for path, layer in adapter_layers(self.model)]
        self._weights = [weight for path, module in modules for weight in _weights(path, module)]
        self._groups = _groups(self._weights)

    def changed(self) -> str | None:
        """What changed first, in words, or ``None``."""
        for path, module, parts in self._parts:
            if tuple(module._modules.values()) != parts:
                return f"the layers inside {path or type(module).__name__} were replaced"
        for path, layer, active in self._adapters:
            now = active_adapters(layer)
            if now != active:
                return (
                    f"the adapters of {plain_name(path)} were switched: {_words(active)}, now {_words(now)}"
                )
        if (settings := self._current_settings()) != self._settings:
            return _changed_setting(self._settings, settings)
        for weight in self._weights:
            _, store, key, tensor, address, version = weight
            written = version is not None and tensor._version != version
            if store.get(key) is not tensor or tensor.data_ptr() != address or written:
                return _change(weight)
        for group in self._groups:
            if (name := group.changed()) is not None:
                return f"{name} was changed in place"
        return None

    def _current_settings(self) -> dict[str, Any]:
        return current_settings(getattr(self.model, "config", None), self.processor)


def _changed_setting(before: dict[str, Any], after: dict[str, Any]) -> str:
    name = next(name for name in (*before, *after) if before.get(name) != after.get(name))
    return f"{name} was changed: {before.get(name, 'not set')}, now {after.get(name, 'not set')}"


def _weights(path: str, module: nn.Module) -> list[_Weight]:
    stores = [store for store in weight_stores(module) if _in_memory(store)]
    found = []
    for store, skipped in (
        (module._parameters, frozenset()),
        (module._buffers, module._non_persistent_buffers_set),
    ):
        for key, tensor in store.items():
            name = plain_name(f"{path}.{key}" if path else key)
            if tensor is None or key in skipped:
                continue
            if not tensor.is_meta:
                found.append(_Weight(name, store, key, tensor, tensor.data_ptr(), _version(tensor)))
                continue
            for kept in stores:  # the parameter is replaced at each forward; its values stay here
                if isinstance(value := kept[key], Tensor):
                    found.append(_Weight(name, kept, key, value, value.data_ptr(), _version(value)))
    return found


def _in_memory(store: Any) -> bool:
    """Whether accelerate's map hands out the tensors it holds, as opposed to reading them from the disk."""
    return isinstance(getattr(store, "dataset", store), dict)


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _change(weight: _Weight) -> str:
    """What happened to a weight that is no longer what it was."""
    name, store, key, tensor, address, _ = weight
    now = store.get(key)
    if now is None:
        return f"{name} was removed"
    if now is not tensor or tensor.data_ptr() != address:
        then = f"{tensor.dtype}".removeprefix("torch.") if now is not tensor else None
        kind = f"{now.dtype} on {now.device}".removeprefix("torch.")
        return f"{name} was replaced, moved or converted: {f'{then}, ' if then else ''}now {kind}"
    return f"{name} was written to in place"


def _groups(weights: list[_Weight]) -> list[_Group]:
    gathered: dict[tuple[torch.dtype, torch.device], tuple[list[str], list[Tensor]]] = {}
    for weight in weights:
        view = _view(weight.tensor)
        if view is not None:
            names, views = gathered.setdefault((view.dtype, view.device), ([], []))
            names.append(weight.name)
            views.append(view)
    return [_Group(names, views) for names, views in gathered.values()]


def _view(tensor: Tensor) -> Tensor | None:
    """Bits of elements spread over a tensor, as a view of one dimension that shows later writes."""
    values = tensor.detach()
    width = BITS.get(values.element_size())
    if type(values) is not Tensor or width is None or values.is_complex() or values.is_quantized:
        return None
    if not values.numel():
        return None
    if not values.is_contiguous():
        values = values.permute(sorted(range(values.dim()), key=values.stride, reverse=True))
        if not values.is_contiguous():
            return None
    step = max(1, values.numel() // SAMPLED)
    while math.gcd(step, values.shape[-1] if values.dim() else 1) != 1:  # not the same column in each row
        step -= 1
    return values.reshape(-1).view(width)[::step]


def _words(adapters: dict[str, float | None]) -> str:
    return (
        " and ".join(name if scale is None else f"{name} (scale {scale})" for name, scale in adapters.items())
        or "none"
    )
