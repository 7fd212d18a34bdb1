"""Loading a checkpoint by id or folder through the Auto classes, with errors that say what to do."""

from __future__ import annotations

import difflib
import logging
from pathlib import Path
from typing import Any

import torch

from reweigh.errors import InputError, UnsupportedError, first_line
from reweigh.families.processor import load_processor

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

logger = logging.getLogger("reweigh.load")


def load(
    name: str | Path,
    *,
    device: str | None = None,
    dtype: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[Any, Any]:
    """Load ``(model, processor)`` for inference. The commands load models with it too, so tables fit.

    Args:
        name: A Hub id or a checkpoint folder.
        device: "cpu", "cuda", "mps", ...; "auto" spreads the model over all accelerators (this needs accelerate). By
            default the best one available.
        dtype: "float32", "bfloat16" or "float16". "auto" keeps the checkpoint's own; on a CPU that is slow in it,
            "auto" takes float32 and logs that it did.
        revision: Branch, tag or commit on the Hub.
        trust_remote_code: Run code that comes with the checkpoint.

    Examples:
        >>> import reweigh
        >>> from reweigh import world
        >>> model, processor = reweigh.load(world.path(), device="cpu")
        >>> model.dtype
        torch.float32
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForImageTextToText

    target = device or best_device()
    if dtype != "auto" and dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r} is unknown", hint=f"one of auto, {', '.join(DTYPES)}")
    if target != "auto":
        _require_device(target)
    require_folder(str(name))
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    placed = {"device_map": "auto"} if target == "auto" else {}
    try:
        chosen = fast_dtype(name, target, **options) if dtype == "auto" else DTYPES[dtype]
        model = AutoModelForImageTextToText.from_pretrained(name, dtype=chosen, **placed, **options)
        processor = load_processor(name, **options)
    except ImportError as error:
        raise UnsupportedError(
            f"{name} needs a package that is not installed ({first_line(error)})",
            hint="install the package it names, e.g. pip install torchvision",
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise InputError(
            f"{name} cannot be loaded as an image-text-to-text model ({first_line(error)})",
            hint="pass a Hub id or a folder with config.json, weights and processor files; offline, only folders "
            "and models already in the cache can be used",
        ) from error
    return (model if placed else model.to(target)).eval(), processor


def require_folder(name: str) -> None:
    """Refuse the path of a folder that does not exist; a Hub id has one slash and starts with a name."""
    is_path = name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1 or "\\" in name
    if not is_path or Path(name).is_dir():
        return
    parent = Path(name).parent
    there = [one.name for one in parent.iterdir() if one.is_dir()] if parent.is_dir() else []
    near = difflib.get_close_matches(Path(name).name, there, n=1)
    hint = f"did you mean {parent / near[0]}?" if near else "give the folder of a checkpoint, or a Hub id"
    raise InputError(f"there is no folder {name}", hint=hint)


def fast_dtype(name: str | Path, device: str, **options: Any) -> Any:
    """Return "auto" for the checkpoint's own type, or float32 on a CPU that is slow in it."""
    if torch.device("cpu" if device == "auto" else device).type != "cpu" or device == "auto":
        return "auto"
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(name, **options)
    own = config.dtype or getattr(config.get_text_config(), "dtype", None)
    if own in (None, torch.float32) or is_fast_on_cpu(own) or hasattr(config, "quantization_config"):
        return "auto"
    own = str(own).removeprefix("torch.")
    logger.warning(
        "%s is stored in %s, which this CPU computes slowly: loading it in float32. A table made from one type is not "
        "used with another; dtype=%r keeps the checkpoint's own.",
        name,
        own,
        own,
    )
    return torch.float32


def is_fast_on_cpu(dtype: torch.dtype) -> bool:
    """Whether this CPU has instructions for products in a 16-bit type."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    names = {torch.bfloat16: ("avx512_bf16", "amx_bf16", "bf16"), torch.float16: ("avx512_fp16", "amx_fp16")}
    return any(known.get(feature) for feature in names.get(dtype, ()))


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
