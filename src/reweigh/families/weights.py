"""Every weight of a loaded model by name, with its values wherever they are stored.

Parameters and persistent buffers, tied ones under each of their names; values that accelerate offloaded come through its
hooks, those of dynamically quantized layers out of their packed form. Adapters count where they are active, so that a model
with its adapters switched off, or merged, is the model that it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.errors import UnsupportedError

WRAPPED = ("base_layer", "original_module", "_orig_mod")
"""Where adapter layers and torch.compile keep the wrapped layer; these parts are dropped from names."""

GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: its multiples spread evenly and never align with rows and columns."""


def named_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield name and values of each weight used in the forward pass; offloaded ones are loaded one at a time."""
    paths = dict(model.named_modules(remove_duplicate=False))
    inactive = tuple(f"{prefix}." for prefix in _inactive(paths))
    for path, module in paths.items():
        for key, tensor in _own_tensors(module):
            name = f"{path}.{key}" if path else key
            if not f"{name}.".startswith(inactive):
                yield plain_name(name), offloaded_value(paths, name) if tensor.is_meta else tensor


def plain_name(name: str) -> str:
    """Return the name of a weight without adapters and wrappers around its layer."""
    return ".".join(part for part in name.split(".") if part not in WRAPPED)


def sample(tensor: Tensor, count: int) -> Tensor:
    """Return ``count`` values spread over the tensor, on the CPU; all values of a smaller one."""
    values = tensor.detach()
    if type(values) is not Tensor and hasattr(values, "dequantize") and hasattr(values, "__torch_dispatch__"):
        values = values.dequantize()  # a packed subclass without access to single elements
    index = spread_indices(tensor.numel(), count).to(values.device, torch.int64)
    if values.is_contiguous():
        return values.reshape(-1)[index].cpu()
    return values[torch.unravel_index(index, values.shape)].cpu()


@cache
def spread_indices(total: int, count: int) -> Tensor:
    """Return ``count`` indices below ``total``, each far from the previous ones; at most all of them."""
    if total <= count:
        return torch.tensor(sorted(range(total), key=lambda index: (index + 1) * GOLDEN % 2**64))
    return torch.tensor([((k + 1) * GOLDEN % 2**64) * total >> 64 for k in range(count)])


def adapter_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield layers that hold switchable adapters around another layer, as peft makes them."""
    yield from ((path, module) for path, module in model.named_modules() if is_adapter_layer(module))


def active_adapters(layer: Any) -> dict[str, float | None]:
    """Return the active adapters of a layer, with their scales; merged ones are part of the weight."""
    if getattr(layer, "disable_adapters", False) or getattr(layer, "merged_adapters", ()):
        return {}
    names = getattr(layer, "active_adapters", None) or getattr(layer, "active_adapter", None) or ()
    scales = getattr(layer, "scaling", None) or {}
    present = {name for _, name in _adapter_parts(layer)}
    chosen = [names] if isinstance(names, str) else list(names)
    return {name: scales.get(name) for name in chosen if name in present}


def offloaded_value(paths: dict[str, nn.Module], name: str) -> Tensor:
    """Return the values of a weight on the meta device, through the hook that loads it for the forward pass."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, -1, -1):
        for hook in _accelerate_hooks(paths.get(".".join(parts[:cut]))):
            store = getattr(hook, "weights_map", None)
            try:
                value = None if store is None else store[".".join(parts[cut:])]
            except KeyError:
                continue
            if isinstance(value, Tensor) and not value.is_meta:
                return value
    raise UnsupportedError(
        f"{name} is on the meta device and has no values",
        hint="load the checkpoint's weights before using the model",
    )


def input_device(model: Any) -> torch.device:
    """Return the device for a model's inputs: that of its first weight, or where accelerate runs an offloaded one."""
    device = torch.device(model.device)
    if device.type != "meta":
        return device
    for module in model.modules():
        for hook in _accelerate_hooks(module):
            if (found := getattr(hook, "execution_device", None)) is not None:
                return torch.device(found)
    return torch.device("cpu")


def _accelerate_hooks(module: nn.Module | None) -> Iterator[Any]:
    waiting = [getattr(module, "_hf_hook", None)]
    while waiting:
        hook = waiting.pop()
        waiting += getattr(hook, "hooks", ())
        yield hook


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for key, parameter in module._parameters.items():
        if parameter is not None:
            yield key, parameter
    for key, buffer in module._buffers.items():
        if buffer is not None and key not in module._non_persistent_buffers_set:
            yield key, buffer
    if type(module).__module__.startswith("torch.ao.nn."):
        yield from _packed_tensors(module)


def _packed_tensors(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the weight of a quantized layer, which returns it from a method: integers, scale and bias."""
    for key in ("weight", "bias"):
        packed = getattr(module, key, None)
        value = packed() if callable(packed) else None
        if isinstance(value, Tensor) and value.is_quantized:
            yield key, value.int_repr()
            per_tensor = value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
            scale = torch.tensor([value.q_scale()]) if per_tensor else value.q_per_channel_scales()
            yield f"{key}_scale", scale
        elif isinstance(value, Tensor):
            yield key, value


def is_adapter_layer(module: nn.Module) -> bool:
    """Whether a layer holds switchable adapters around another."""
    wraps = "base_layer" in module._modules or "original_module" in module._modules
    return wraps and (hasattr(module, "active_adapters") or hasattr(module, "active_adapter"))


def _adapter_parts(layer: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the containers of an adapter layer, each with the name of every adapter in it."""
    for container, part in layer._modules.items():
        if part is not None and container not in WRAPPED:
            yield from ((container, name) for name in (*part._modules, *part._parameters, *part._buffers))


def _inactive(paths: dict[str, nn.Module]) -> Iterator[str]:
    """Yield the paths of the weights of inactive adapters."""
    for path, module in paths.items():
        if is_adapter_layer(module):
            active = active_adapters(module)
            for container, name in _adapter_parts(module):
                if name not in active:
                    yield f"{path}.{container}.{name}" if path else f"{container}.{name}"
