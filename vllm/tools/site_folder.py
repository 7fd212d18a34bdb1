"""A folder to put on PYTHONPATH: the package as if it were installed, and a Triton backend for this CPU.

``python vllm/tools/site_folder.py FOLDER`` makes FOLDER/package and FOLDER/triton. The package's entry points come from
pyproject.toml itself; the sources stay where they are. Model Runner V2 wants Triton to have a backend called "cpu"; with
TRITON_INTERPRET=1 the interpreter runs every kernel and the backend is never asked to compile, so an empty one is enough.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

COMPILER = """
from triton.backends.compiler import BaseBackend


class Nothing(BaseBackend):
    "Compiles nothing."


Nothing.__abstractmethods__ = frozenset()
"""
DRIVER = """
from triton.backends.driver import DriverBase


class Nobody(DriverBase):
    "Drives nothing."

    @classmethod
    def is_active(cls):
        return False


Nobody.__abstractmethods__ = frozenset()
"""
INTERPRETER = '''
"""Masks of loads and stores as booleans: the interpreter hands some on as integers, which NumPy takes for indices."""

import functools

import numpy
from triton.runtime.interpreter import InterpreterBuilder


def with_boolean_mask(method, place):
    @functools.wraps(method)
    def call(self, *arguments, **options):
        mask = arguments[place]
        if getattr(mask, "data", None) is not None:
            mask.data = numpy.asarray(mask.data, dtype=numpy.bool_)
        return method(self, *arguments, **options)

    return call


InterpreterBuilder.create_masked_load = with_boolean_mask(InterpreterBuilder.create_masked_load, 1)
InterpreterBuilder.create_masked_store = with_boolean_mask(InterpreterBuilder.create_masked_store, 2)
'''


def main(folder: Path) -> None:
    """Write the folder."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    _distribution(folder / "package", "reweigh_vllm", groups)
    folder = folder / "triton"
    package = folder / "interpreted_cpu"
    package.mkdir(parents=True, exist_ok=True)
    for name, text in (("__init__", ""), ("compiler", COMPILER), ("driver", DRIVER), ("masks", INTERPRETER)):
        (package / f"{name}.py").write_text(text.lstrip())
    _distribution(folder, "interpreted_cpu", {"triton.backends": {"cpu": "interpreted_cpu"}})


def _distribution(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    info = folder / f"{name}-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
