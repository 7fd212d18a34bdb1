"""Fixtures of the whole suite: small random checkpoints, built on demand, once for all workers."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Some virtual machines report AMX and crash on it. Without it, 16-bit products are also equal on all machines.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # helpers; tools

# Property tests draw the same cases each time, without deadlines. `explore` draws other cases, and more of them.
with contextlib.suppress(ImportError):  # the environment of vLLM has none
    from hypothesis import settings

    settings.register_profile("fixed", derandomize=True, deadline=None)
    settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
    settings.load_profile("fixed")

PROMPTS = ("Please describe this image in detail.", "What is in the image?")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--last-line", action="store_true", help="end with one sentence about the whole run")
    group = parser.getgroup("numerics", "other machines' rounding, see tests/numerics.py")
    group.addoption(
        "--weight-offset", type=int, metavar="BYTES", help="start weights this far past a multiple of 64"
    )
    group.addoption(
        "--round-by",
        default="",
        metavar="CAUSES",
        help="round linear layers by address, rows or address,rows",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--last-line") and "PYTEST_XDIST_WORKER" not in os.environ:
        from last_line import LastLine

        config.pluginmanager.register(LastLine(config))
    to, causes = config.getoption("--weight-offset"), config.getoption("--round-by")
    if to is None and not causes:
        return
    import numerics

    if to is not None:
        numerics.move_loaded_weights(to)
    if causes:
        if unknown := set(causes.split(",")) - set(numerics.CAUSES):
            raise pytest.UsageError(
                f"--round-by knows {', '.join(numerics.CAUSES)}, not {', '.join(unknown)}"
            )
        numerics.round_by(causes.split(","))


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the decoders, benchmarks and plugin files that a test registers."""
    from reweigh.cli import plugin
    from reweigh.lab.tasks import BENCHMARKS
    from reweigh.rivals import DECODERS

    monkeypatch.setattr(plugin, "_loaded", {})
    with DECODERS.sandbox(), BENCHMARKS.sandbox():
        yield


def pytest_runtest_setup() -> None:
    """Make random numbers independent of earlier tests in this process."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``checkpoint(family, bare=False)``: the folder of a saved random checkpoint. Never write into it."""

    @cache
    def path(family: str, bare: bool = False) -> Path:
        from checkpoints import build
        from once import make_once

        name = f"{family}-bare" if bare else family
        return make_once(tmp_path_factory, name, lambda folder: build(family, folder, bare=bare))

    return path


@pytest.fixture(scope="session")
def loaded(checkpoint: Callable[..., Any]) -> Callable[[str], tuple[Any, Any]]:
    """``loaded(family)``: model and processor, read once."""
    kept: dict[str, tuple[Any, Any]] = {}

    def get(family: str) -> tuple[Any, Any]:
        from checkpoints import load

        if family not in kept:
            kept[family] = load(checkpoint(family))
        return kept[family]

    return get


@pytest.fixture(scope="session")
def batch(loaded: Callable[[str], tuple[Any, Any]]) -> Callable[..., dict[str, Any]]:
    """``batch(family, rows=(0, 1))``: inputs of pictures and prompts of different sizes, left-padded."""

    def make(family: str, rows: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
        from checkpoints import picture
        from reweigh.families.prompts import build_inputs

        model, processor = loaded(family)
        pictures = [picture(seed + 1, (70, 50) if seed == 0 else (56, 56)) for seed in rows]
        return build_inputs(model, processor, pictures, [PROMPTS[seed % 2] for seed in rows])

    return make


@pytest.fixture
def overwriting() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A block in which files of others may be replaced, as with --overwrite."""
    from reweigh.files.outputs import overwrite

    @contextlib.contextmanager
    def allowed() -> Any:
        overwrite(True)
        try:
            yield
        finally:
            overwrite(False)

    return allowed
