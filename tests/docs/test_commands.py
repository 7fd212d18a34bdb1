"""The page of all commands says what they say of themselves, and every command in the documents exists."""

from __future__ import annotations

import re
import runpy

import pytest
from blocks import PAGES, ROOT, commands, read_blocks
from typer.main import get_command
from typer.testing import CliRunner

from reweigh.cli import plugin
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


PRINTED = sorted(
    {
        tuple(words[1:])
        for page in PAGES
        for block in read_blocks(page)
        if block.language == "sh"
        for words in commands(block.code)
        if words[0] == "reweigh"
    }
)


@pytest.mark.parametrize("words", PRINTED, ids=" ".join)
def test_a_printed_command_has_these_options(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that are not run can go stale, too; parsing alone runs nothing."""
    monkeypatch.setattr(plugin, "load_plugin", lambda path: None)
    command, arguments = get_command(app), list(words)
    while hasattr(command, "commands") or hasattr(command, "list_commands"):
        command = command.get_command(None, arguments.pop(0))  # type: ignore[attr-defined]
        assert command is not None
    command.make_context("reweigh", arguments)
