"""Loading a checkpoint by id or folder through the Auto classes, with errors that say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from reweigh.errors import InputError, UnsupportedError, first_line
from reweigh.families.processor import load_processor

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    model_id: str | Path,
    *,
    dtype: str = "auto",
    device: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[Any, Any]:
    """Load ``(model, processor)`` for inference.

    Args:
        model_id: A Hub id or a checkpoint folder.
        dtype: "auto" keeps the checkpoint's own type on an accelerator and computes in float32 on a CPU.
        device: "cpu", "cuda", "mps", ...; by default the best one available.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForImageTextToText

    target = device or best_device()
    _require_device(target)
    torch_dtype = _dtype(dtype, target)
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    try:
        model = AutoModelForImageTextToText.from_pretrained(model_id, dtype=torch_dtype, **options)
        processor = load_processor(model_id, **options)
    except ImportError as error:
        raise UnsupportedError(
            f"the processor of {model_id} needs a package that is not installed ({first_line(error)})",
            hint="install the package it names, e.g. pip install torchvision",
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise InputError(
            f"{model_id} cannot be loaded as an image-text-to-text model ({first_line(error)})",
            hint="pass a Hub id or a folder with config.json, weights and processor files; offline, only folders "
            "and models already in the cache can be used",
        ) from error
    return model.to(target).eval(), processor


def best_device() -> str:
    """Return the accelerator, if there is one."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _require_device(device: str) -> None:
    """Refuse an unavailable device before anything is loaded."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch was built without the device
        raise InputError(
            f"the model cannot be put on device {device!r} ({first_line(error)})",
            hint="leave the device out to use the best one available, or use cpu",
        ) from error


def _dtype(name: str, device: str) -> Any:
    if name == "auto":
        return torch.float32 if device == "cpu" else "auto"
    if name not in DTYPES:
        raise InputError(f"dtype {name!r} is unknown", hint=f"one of auto, {', '.join(DTYPES)}")
    return DTYPES[name]
