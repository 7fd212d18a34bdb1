"""Stand-ins for packages that tests do without: as much of peft as wrapping and adapters need; quantised models."""

from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn


def config(kind: str = "LORA", *, is_prompt_learning: bool = False) -> Any:
    """A peft configuration."""
    return SimpleNamespace(peft_type=SimpleNamespace(value=kind), is_prompt_learning=is_prompt_learning)


class LoraLinear(nn.Module):
    """A linear layer with low-rank adapters, held and switched as peft's tuner layers do."""

    def __init__(self, base: nn.Linear, name: str = "default", rank: int = 2, seed: int = 0) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict()
        self.lora_B = nn.ModuleDict()
        self.scaling: dict[str, float] = {}
        self.merged_adapters: list[str] = []
        self._disable_adapters = False
        self._active_adapter: str | list[str] = name
        self.add(name, rank, seed)

    def add(self, name: str, rank: int = 2, seed: int = 0) -> None:
        """Add an adapter with random weights."""
        random = torch.Generator().manual_seed(seed)
        down = nn.Linear(self.base_layer.in_features, rank, bias=False)
        up = nn.Linear(rank, self.base_layer.out_features, bias=False)
        with torch.no_grad():
            for part in (down, up):
                part.weight.copy_(torch.randn(part.weight.shape, generator=random) * 0.1)
        self.lora_A[name], self.lora_B[name], self.scaling[name] = down, up, 2.0

    @property
    def active_adapters(self) -> list[str]:
        return [self._active_adapter] if isinstance(self._active_adapter, str) else self._active_adapter

    @property
    def disable_adapters(self) -> bool:
        return self._disable_adapters

    def set_adapter(self, names: str | list[str]) -> None:
        self._active_adapter = names

    def delta(self, name: str) -> torch.Tensor:
        return self.scaling[name] * self.lora_B[name].weight @ self.lora_A[name].weight

    def merge(self) -> None:
        for name in self.active_adapters:
            self.base_layer.weight.data += self.delta(name).detach()
            self.merged_adapters.append(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.base_layer(x)
        if not (self.disable_adapters or self.merged_adapters):
            for name in self.active_adapters:
                y = y + self.scaling[name] * self.lora_B[name](self.lora_A[name](x))
        return y


def inject(model: Any, name: str = "default", seed: int = 0) -> list[LoraLinear]:
    """Put a LoRA layer in the place of every query projection of the language model."""
    layers = []
    for block in model.model.language_model.layers:
        layer = LoraLinear(block.self_attn.q_proj, name, seed=seed)
        block.self_attn.q_proj = layer
        layers.append(layer)
    return layers


class Tuner(nn.Module):
    """peft's LoraModel: holds the real model as ``model`` and hands attributes on."""

    def __init__(self, model: Any, configs: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.peft_config = configs

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "model":
                raise
            return getattr(self.model, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


class PeftModel(nn.Module):
    """peft's PeftModel: holds a tuner, or for prompt learning the model itself, as ``base_model``."""

    def __init__(self, model: Any, one: Any) -> None:
        super().__init__()
        configs = {"default": one}
        if one.is_prompt_learning:
            self.base_model = model
            self.__dict__["peft_config"] = configs
        else:
            self.base_model = Tuner(model, configs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base_model":
                raise
            return getattr(self.base_model, name)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        return self.base_model.generate(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.base_model(*args, **kwargs)


Tuner.__module__ = "peft.tuners.lora.model"
PeftModel.__module__ = "peft.peft_model"


def quantised(model: Any, *, head_only: bool = False) -> Any:
    """A copy with dynamically quantised (int8) linear layers, whose weight is a method."""
    made = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if head_only:
            made.lm_head = torch.ao.quantization.quantize_dynamic(
                nn.Sequential(made.lm_head), {nn.Linear}, dtype=torch.qint8
            )[0]
            return made
        return torch.ao.quantization.quantize_dynamic(made, {nn.Linear}, dtype=torch.qint8)
