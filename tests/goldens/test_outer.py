"""Every command gives the values that it gave when it was frozen, and folders written then still open."""

from __future__ import annotations

import importlib.metadata
import json
import platform

import pytest

from goldens import commands
from goldens.commands import OUTER, SLOW
from goldens.values import FOLDERS, FROZEN, assert_frozen


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in OUTER]
)
def test_a_command_says_what_was_frozen(name: str) -> None:
    assert_frozen(name, OUTER[name]())


def test_every_frozen_outer_file_has_a_case() -> None:
    files = {
        file.relative_to(FROZEN).with_suffix("").as_posix() for file in (FROZEN / "outer").rglob("*.json")
    }
    assert files == set(OUTER)


def test_run_folders_of_then_are_scored_and_compared_alike() -> None:
    assert_frozen("outer/eval", commands.reopened_runs())


def test_calibrations_of_then_open() -> None:
    assert_frozen("outer/calibrate", commands.reopened_tables())


def skip_under_other_versions() -> None:
    """A run resumes only under the versions that began it."""
    environment = json.loads((FOLDERS / "run-base" / "record.json").read_text())["environment"]
    here = {name: importlib.metadata.version(name) for name in environment["packages"]}
    if (environment["packages"], environment["python"]) != (here, platform.python_version()):
        pytest.skip("the folders were written under other versions")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), [("comparison", "outer/compare"), ("tuning", "outer/tune")])
def test_finished_searches_of_then_are_not_answered_again(name: str, values: str) -> None:
    skip_under_other_versions()
    assert_frozen(values, commands.resumed(name))


@pytest.mark.slow
def test_the_images_of_a_corpus_of_then_are_not_described_again() -> None:
    skip_under_other_versions()
    assert "30" in commands.resumed_corpus()
