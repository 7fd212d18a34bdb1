"""Remove the wrappers of torch.compile and peft from a model, or say why one is not supported.

Hooks and ``generate`` must act on the model inside. peft methods that act in the wrapper's own forward are refused: the
model inside would be read without them.
"""

from __future__ import annotations

from typing import Any

from reweigh.errors import UnsupportedError

COMPILED = "_orig_mod"
"""Where torch.compile keeps the module it wraps."""


def unwrap(model: Any) -> tuple[Any, bool]:
    """The model inside the wrappers of torch.compile and peft, and whether torch.compile was among them.

    Raises:
        UnsupportedError: A wrapper changes what the model computes.
    """
    compiled = False
    while True:
        modules = getattr(model, "_modules", None) or {}
        if COMPILED in modules:
            model, compiled = modules[COMPILED], True
        elif _is_from_peft(model):
            model = _inside_peft(model, modules)
        else:
            return model, compiled


def _is_from_peft(model: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "peft" for kind in type(model).__mro__)


def _inside_peft(model: Any, modules: dict[str, Any]) -> Any:
    """PeftModel holds a tuner as ``base_model``, the tuner the real model as ``model``."""
    name = type(model).__name__
    configs = getattr(model, "peft_config", None) or {}
    kinds = {
        str(getattr(one.peft_type, "value", one.peft_type))
        for one in configs.values()
        if getattr(one, "is_prompt_learning", False)
        or str(getattr(one.peft_type, "value", one.peft_type)) == "XLORA"
    }
    if kinds:
        raise UnsupportedError(
            f"{name} uses {', '.join(sorted(kinds))}, which acts in the wrapper's own forward: the model inside "
            "would be read without it",
            hint="merge it into the weights, or use an adapter that lives in the layers (LoRA and its kin)",
        )
    inner = modules.get("base_model", modules.get("model"))
    if inner is None:
        raise UnsupportedError(
            f"{name} of peft has no model as .base_model or .model", hint="give the model inside it"
        )
    return inner
