"""What a command says to do next works where it is pasted."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from reweigh.cli import common
from reweigh.errors import InputError, MissingExtraError, source_folder
from reweigh.families.load import load


def test_words_of_the_next_command_are_quoted():
    same = common.same("my model", table="tables/a b")
    command = f"{same} {common.quoted(Path('my pictures') / 'it.png')}"
    assert shlex.split(command) == ["my model", "--table", "tables/a b", "my pictures/it.png"]


def test_an_extra_is_installed_from_where_the_package_came_from():
    hint = str(MissingExtraError("a data frame", "pandas", "pandas"))
    folder, _, extra = shlex.split(hint.splitlines()[-1])[-1].partition("[")
    assert extra == "pandas]"
    assert folder == source_folder()
    assert (Path(folder) / "pyproject.toml").is_file()


def test_a_folder_that_does_not_exist_is_called_so(tmp_path):
    (tmp_path / "llava-1.5").mkdir()
    with pytest.raises(InputError, match=r"there is no folder .*llava-15") as caught:
        load(tmp_path / "llava-15")
    assert f"did you mean {tmp_path / 'llava-1.5'}?" in str(caught.value)
