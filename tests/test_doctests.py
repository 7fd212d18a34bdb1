"""Examples in docstrings are run, so that they stay true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import reweigh

ROOT = Path(reweigh.__file__).parent
MODULES = sorted(
    ".".join(("reweigh", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_true(module):
    done = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert done.attempted > 0, "the examples were not found"
    assert done.failed == 0


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("reweigh.method.references", "strength"),
        ("reweigh.method.sums", "ReadoutSums"),
        ("reweigh.method.edit", "StepEditor"),
        ("reweigh.method.references", "range_index"),
    ],
)
def test_the_steps_of_the_method_have_an_example(module, name):
    found = doctest.DocTestFinder(recurse=True).find(importlib.import_module(module))
    [example] = [one for one in found if one.name == f"{module}.{name}"]
    assert example.examples


@pytest.mark.parametrize("name", sorted(reweigh._PUBLIC))
def test_every_public_name_has_an_example(name):
    value = getattr(reweigh, name)
    assert doctest.DocTestParser().get_examples(value.__doc__ or ""), name
