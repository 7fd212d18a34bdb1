"""Rank kernels behind one interface, and the choice among them. All give the same integers; speeds differ."""

from __future__ import annotations

import os
from functools import cache

import torch

from reweigh.errors import (
    InputError,
    MissingExtraError,
    ReweighError,
    UnknownNameError,
    UnsupportedError,
)
from reweigh.method.kernels.base import LOGIT_DTYPES, Kernel
from reweigh.method.kernels.plain import add_by_numpy, add_by_torch

__all__ = ["KERNELS", "LOGIT_DTYPES", "Kernel", "available_kernels", "choose_kernel", "unused_numba"]

ENVIRONMENT = "REWEIGH_KERNEL"

NUMPY = Kernel("numpy", add_by_numpy)
TORCH = Kernel("torch", add_by_torch, has_threads=True)

KERNELS = ("auto", "numba", "numpy", "torch")
"""Names that can be forced, whether or not this machine can run them; ``auto`` chooses."""


def available_kernels() -> list[str]:
    """Return the kernels that this machine's CPU can run, the preferred one first."""
    return [*(["numba"] if isinstance(_numba_kernel(), Kernel) else []), "numpy", "torch"]


def choose_kernel(name: str, device: torch.device, dtype: torch.dtype) -> Kernel:
    """Choose the kernel for some logits; ``auto`` yields to the environment variable REWEIGH_KERNEL."""
    if name == "auto":
        name = os.environ.get(ENVIRONMENT) or "auto"
    if name not in KERNELS:
        raise UnknownNameError("rank kernel", name, KERNELS)
    if dtype not in LOGIT_DTYPES:
        raise InputError(
            f"logits are {dtype}; ranks are taken of float32, bfloat16 or float16",
            hint="pass the head's own logits, without a cast",
        )
    if device.type != "cpu" and name not in ("auto", "torch"):
        raise InputError(
            f"kernel {name!r} runs on the CPU, the logits are on {device}", hint="use auto or torch"
        )
    if name == "torch" or device.type != "cpu":
        return TORCH
    if name == "numpy":
        return NUMPY
    kernel = _numba_kernel()
    if isinstance(kernel, Kernel):
        return kernel
    if name == "auto":
        return NUMPY
    raise _unusable(kernel)


def unused_numba() -> ReweighError | None:
    """Return why ``auto`` cannot use the fastest CPU kernel, with a remedy; ``None`` if it can."""
    kernel = _numba_kernel()
    return _unusable(kernel) if isinstance(kernel, Exception) else None


def _unusable(reason: Exception) -> ReweighError:
    if isinstance(reason, ModuleNotFoundError) and reason.name == "numba":
        return MissingExtraError("the numba rank kernel", "fast", "numba")
    return UnsupportedError(
        f"numba is installed, but its rank kernel cannot be used ({type(reason).__name__}: {reason})",
        hint="install numba again, or use auto or numpy: the results are the same",
    )


@cache
def _numba_kernel() -> Kernel | Exception:
    """Return the compiled kernel, or the error that prevents its use."""
    try:
        from numba import config

        from reweigh.method.kernels.radix import add_terms
    except Exception as error:  # a broken llvmlite or a too new NumPy fails in many ways
        return error.with_traceback(None)
    return RuntimeError("NUMBA_DISABLE_JIT is set") if config.DISABLE_JIT else Kernel("numba", add_terms)
