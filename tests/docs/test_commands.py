"""The page of all commands, which the site is built with, says what they say of themselves."""

from __future__ import annotations

import re
import runpy

import pytest
from blocks import ROOT
from typer.testing import CliRunner

from reweigh.cli.app import COMMANDS, app

PAGE = runpy.run_path(str(ROOT / "scripts" / "commands_page.py"))["reference"]()


def names(sections: list[str]) -> list[str]:
    return [section.splitlines()[0] for section in sections]


SECTIONS = re.split(r"^#{2,} reweigh ", PAGE, flags=re.MULTILINE)[1:]


def test_every_command_has_a_section() -> None:
    assert [name for name in names(SECTIONS) if " " not in name] == list(COMMANDS)


@pytest.mark.parametrize("section", SECTIONS, ids=names(SECTIONS))
def test_help_names_every_option_of_the_page(section: str) -> None:
    """The terminal's help, drawn by other code, lists the same options."""
    words = section.splitlines()[0].split()
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    for row in re.findall(r"^\| `(-.+?)` \|", section, flags=re.MULTILINE):
        assert set(re.findall(r"--[\w-]+", row)) <= set(re.findall(r"--[\w-]+", shown)), row
