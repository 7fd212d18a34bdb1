"""The choice of a kernel, its fallbacks, and the fixed-point terms they share."""

from __future__ import annotations

import builtins
import importlib.util
import re
from fractions import Fraction
from typing import Any

import pytest
import torch

from reweigh.errors import InputError, MissingExtraError, UnknownNameError, UnsupportedError
from reweigh.method import kernels
from reweigh.method.kernels import KERNELS, available_kernels, choose_kernel
from reweigh.method.kernels.base import term_table

CPU = torch.device("cpu")
HAS_NUMBA = importlib.util.find_spec("numba") is not None


def chosen(name: str, device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> str:
    return choose_kernel(name, device, dtype).name


def test_auto_prefers_the_compiled_kernel_on_the_cpu_and_torch_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("REWEIGH_KERNEL", raising=False)
    assert chosen("auto") == ("numba" if HAS_NUMBA else "numpy")
    assert chosen("auto", torch.device("meta")) == "torch"
    assert chosen("torch") == "torch"
    assert chosen("numpy") == "numpy"


def test_the_environment_decides_auto_and_an_option_decides_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWEIGH_KERNEL", "torch")
    assert chosen("auto") == "torch"
    assert chosen("numpy") == "numpy"
    monkeypatch.setenv("REWEIGH_KERNEL", "nummpy")
    with pytest.raises(UnknownNameError, match="did you mean numpy"):
        chosen("auto")


def break_numba(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let ``import numba`` fail with ``error``, and look for the kernel anew."""
    plain = builtins.__import__

    def failing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "numba":
            raise error
        return plain(name, *args, **kwargs)

    monkeypatch.delenv("REWEIGH_KERNEL", raising=False)
    monkeypatch.setattr(kernels, "_numba_kernel", kernels._numba_kernel.__wrapped__)
    monkeypatch.setattr(builtins, "__import__", failing)


def test_without_numba_auto_is_numpy_and_forcing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_numba(monkeypatch, ModuleNotFoundError("No module named 'numba'", name="numba"))
    assert chosen("auto") == "numpy"
    assert available_kernels() == ["numpy", "torch"]
    with pytest.raises(MissingExtraError, match=r"\[fast\]"):
        chosen("numba")


@pytest.mark.parametrize(
    "error",
    [
        OSError("Could not find/load shared object file 'libllvmlite.so'"),
        ImportError("Numba needs NumPy 2.4 or less"),
        ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite"),
        SystemError("initialization of _internal failed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_where_numba_is_broken_auto_is_numpy_and_forcing_says_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    break_numba(monkeypatch, error)
    assert chosen("auto") == "numpy"
    assert available_kernels() == ["numpy", "torch"]
    with pytest.raises(UnsupportedError, match=re.escape(f"({type(error).__name__}: {error})")):
        chosen("numba")
    assert str(error) in str(kernels.unused_numba())


@pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed")
def test_where_numba_may_not_compile_auto_is_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba import config

    monkeypatch.delenv("REWEIGH_KERNEL", raising=False)
    monkeypatch.setattr(kernels, "_numba_kernel", kernels._numba_kernel.__wrapped__)
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    assert chosen("auto") == "numpy"
    with pytest.raises(UnsupportedError, match="NUMBA_DISABLE_JIT"):
        chosen("numba")


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(InputError, match="meta"):
        chosen("numpy", torch.device("meta"))
    with pytest.raises(InputError, match="float64"):
        chosen("auto", dtype=torch.float64)
    with pytest.raises(UnknownNameError, match="known: auto"):
        chosen("zzz")
    assert "auto" in KERNELS


def test_terms_are_the_nearest_multiples_of_the_unit() -> None:
    table = term_table(5000)
    for rank in (1, 2, 3, 7, 1000, 4999, 5000):
        assert abs(Fraction(int(table[rank])) - Fraction(2**40, rank)) <= Fraction(1, 2) + Fraction(1, 2**12)
    with pytest.raises(ValueError, match="read-only"):
        table[1] = 0


@pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed")
def test_where_numba_finds_no_cache_folder_it_compiles_without_one() -> None:
    from numba import njit

    from reweigh.method.kernels.radix import compiled

    names: dict[str, Any] = {}
    exec("def twice(x):\n    return 2 * x", names)  # no file, so no place for a cache
    with pytest.raises(RuntimeError, match="locat"):
        njit(cache=True)(names["twice"])
    assert compiled(names["twice"])(21) == 42
