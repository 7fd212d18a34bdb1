"""Take the wrappers of torch.compile and peft off a model, or say why one cannot be served.

Hooks and ``generate`` must act on the model inside. A compiled part runs code that was traced without our hooks and
never calls them, so any compiled part below the outermost wrapper is refused; peft methods that act in the wrapper's own
forward are refused too.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from reweigh.errors import UnsupportedError

COMPILED = "_orig_mod"
"""Where torch.compile keeps the module it wraps."""

UNCOMPILED = "attach to the model before compiling it, or load it again without torch.compile"


def unwrap(model: Any) -> Any:
    """The model inside the wrappers of torch.compile and peft.

    Raises:
        UnsupportedError: A wrapper changes what the model computes, or a part of the model is compiled.
    """
    inner = model
    while True:
        modules = getattr(inner, "_modules", None) or {}
        if COMPILED in modules:
            inner = modules[COMPILED]
        elif _is_from_peft(inner):
            inner = _inside_peft(inner, modules)
        else:
            break
    if isinstance(inner, nn.Module):
        _refuse_compiled_parts(inner)
    return inner


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
            f"{name} of peft holds no model as .base_model or .model", hint="give the model inside it"
        )
    return inner


def _refuse_compiled_parts(model: nn.Module) -> None:
    for path, module in model.named_modules():
        where = f"{type(model).__name__}.{path}" if path else type(model).__name__
        if COMPILED in module._modules:
            raise UnsupportedError(
                f"{where} is wrapped by torch.compile: its compiled code skips the hooks that read it",
                hint=UNCOMPILED,
            )
        forward = vars(module).get("forward")
        if module._compiled_call_impl is not None or hasattr(forward, "_torchdynamo_orig_callable"):
            raise UnsupportedError(
                f"{where} was compiled in place: its compiled code skips the hooks that read it",
                hint=UNCOMPILED,
            )
