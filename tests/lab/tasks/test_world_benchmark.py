"""The embedded world as a benchmark: what it is asked for must make sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.errors import InputError
from reweigh.lab.tasks.world import World

run = CliRunner().invoke


@pytest.mark.parametrize("wrong", [{"scenes": "x"}, {"scenes": 0}, {"scenes": True}, {"scene_seed": -1}])
def test_numbers_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        World(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [("--limit", "0"), ("--limit", "-1"), ("--batch-size", "0")])
def test_a_run_of_nothing_is_refused(tmp_path: Path, wrong: tuple[str, str]) -> None:
    done = run(app, ["eval", "run", "world", "-b", "world", "--out", str(tmp_path / "run"), *wrong])
    assert done.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(app, ["eval", "score", str(tmp_path / "nope")])
    assert isinstance(done.exception, InputError)
    assert "nope" in str(done.exception)
