"""The command itself: help, versions, exit codes, and errors as one message."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

import reweigh
from reweigh.cli import common
from reweigh.cli.app import COMMANDS

CORE = ["describe", "trace", "check", "doctor", "calibrate", "table"]


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", CORE)
def test_every_command_explains_itself(cli, command, flag):
    done = cli(command, flag)
    assert done.code == 0
    assert "Usage" in done.out
    assert done.err == ""


def test_every_command_of_the_table_has_its_module():
    missing = [module for module in COMMANDS.values() if importlib.util.find_spec(module) is None]
    assert missing == []


def test_the_list_of_commands(cli):
    done = cli("--help")
    assert done.code == 0
    for name in CORE:
        assert name in done.out


def test_the_version(cli):
    assert cli("--version").out == f"reweigh {reweigh.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["describe"],
        ["describe", "m", "i", "--beta", "much"],
        ["describe", "m", "i", "--no-such-option"],
        ["describe", "m", "i", "--max-new-tokens", "0"],
        ["trace", "m", "i", "--top", "0"],
        ["calibrate", "m", "i"],
        ["calibrate", "m", "i", "-o", "x", "--batch-size", "0"],
        ["table", "nonsense"],
    ],
)
def test_wrong_usage_exits_with_two(cli, arguments):
    done = cli(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err


def test_an_unknown_model_is_one_message_and_exit_code_one(cli, tmp_path):
    done = cli("describe", "no-one/no-model", "x.png", "--table", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: no-one/no-model cannot be loaded")
    assert "\n  hint: " in done.err
    assert "Traceback" not in done.err


def test_ctrl_c_says_that_it_can_go_on(cli, monkeypatch, tmp_path):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(common.Weights, "load", interrupted)
    done = cli("calibrate", "model", "images", "-o", tmp_path)
    assert done.code == 130
    assert "the same command goes on" in done.err


def test_the_real_thing_in_its_own_process(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "reweigh", "table", "show", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {tmp_path} holds no reference table")


def test_a_pipe_is_wide_and_a_user_may_say_how_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert common.console().width == common.PIPE_WIDTH
    monkeypatch.setenv("COLUMNS", "70")
    assert common.console().width == 70
