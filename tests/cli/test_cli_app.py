"""The command itself: help, versions, exit codes, and errors as one message."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys

import pytest
import typer
from typer.main import get_command

import reweigh
from reweigh.cli import app, common
from reweigh.cli.app import COMMANDS

CORE = ["describe", "doctor", "calibrate", "table"]


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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")
def test_a_full_standard_output_is_no_bug():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "reweigh", "data"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: a file or the standard output: No space left on device\n"


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
        ["describe", "m", "i", "--temperature", "-1"],
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


def _short_flags(command, place):
    """Each short flag with the option it stands for, by the command that has it."""
    for name, below in getattr(command, "commands", {}).items():
        yield from _short_flags(below, f"{place} {name}")
    for parameter in command.params:
        flags = list(parameter.opts)
        for short in (flag for flag in flags if len(flag) == 2):
            yield short, max(flags, key=len), place


def test_a_short_flag_means_one_thing():
    found: dict[str, set[str]] = {}
    for name, module in COMMANDS.items():
        command = get_command(importlib.import_module(module).app)
        for short, long, _ in _short_flags(command, name):
            found.setdefault(short, set()).add(long)
    assert {short: longs for short, longs in found.items() if len(longs) > 1} == {}
    assert found["-o"] == {"--out"}
    assert "-v" not in found
    assert "-q" not in found


def _every_command(command, place=()):
    """Each command that does something, by its name."""
    below = getattr(command, "commands", None)
    if below is None and not hasattr(command, "list_commands"):
        yield " ".join(place), command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from _every_command(command.get_command(context, name), (*place, name))


ALL = dict(_every_command(get_command(app.app)))


@pytest.mark.parametrize("name", ALL)
def test_every_command_speaks_json_and_can_be_quiet(name):
    flags = [flag for parameter in ALL[name].params for flag in parameter.opts]
    assert {"--json", "--plugin", "--quiet", "-q", "--verbose", "-v"} <= set(flags)
    assert len(flags) == len(set(flags)), "one flag, one option"


def test_quiet_before_and_after_a_command(cli, photos, calibrated, checkpoint):
    describe = ("describe", checkpoint("llava"), photos / "6.png", "--table", calibrated, "-l", "1")
    describe += ("--max-new-tokens", "3")
    assert "beta" in cli(*describe).err, "where the point comes from"
    assert cli(*describe, "-q").err == cli("-q", *describe).err == ""


def test_quiet_keeps_notes_away_and_warnings_stay(cli, photos, capsys):
    cli("-q", "doctor", "--points")
    common.note("nobody needs this")
    assert capsys.readouterr().err == ""
    common.require_pictures("world", [photos / "6.png"])
    assert capsys.readouterr().err.startswith("warning: ")
    cli("doctor", "--points", "-q")
    common.note("nobody needs this")
    assert capsys.readouterr().err == ""
    cli("doctor", "--points")
    common.note("a note")
    assert capsys.readouterr().err == "a note\n"


def test_completion_and_verbosity_are_options_of_the_whole(cli):
    shown = cli("--help").out
    for flag in ("--install-completion", "--show-completion", "--quiet", "--verbose", "-q", "-v"):
        assert flag in shown
    assert cli("-q", "doctor", "--points", "--json").code == 0


@pytest.mark.parametrize(
    ("typed", "meant"), [("descibe", "describe"), ("calibrat", "calibrate"), ("tabel", "table")]
)
def test_an_unknown_command_gets_a_suggestion(cli, typed, meant):
    done = cli(typed)
    assert done.code == 2
    assert f"did you mean {meant}" in done.err
    assert "reweigh -h" in cli("zzzzzz").err


def test_a_near_miss_of_the_embedded_model_is_reported(cli, photos):
    done = cli("describe", "wrld", photos / "6.png")
    assert done.code == 1
    assert "'wrld'" in done.err
    assert "world" in done.err
    assert "reference table" in cli("describe", "my/llava", photos / "6.png").err


def test_an_unknown_model_is_one_message_and_exit_code_one(cli, photos, calibrated):
    done = cli("describe", "no-one/no-model", photos / "6.png", "--table", calibrated)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: no-one/no-model")
    assert "\n  hint: " in done.err
    assert "Traceback" not in done.err


def test_ctrl_c_says_that_it_can_resume(cli, monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(common.Loading, "load", interrupted)
    done = cli("doctor", "model")
    assert done.code == 130
    assert "resume" in done.err


@pytest.fixture
def broken(monkeypatch):
    """A command that meets something nobody foresaw."""
    monkeypatch.delenv("REWEIGH_TRACEBACK", raising=False)

    def fail(*_args, **_kwargs):
        raise ZeroDivisionError("one\ntwo")

    monkeypatch.setattr(common.Loading, "load", fail)
    return ("doctor", "model")


def test_an_unexpected_error_is_one_line_and_asks_for_a_report(cli, broken):
    done = cli(*broken)
    assert done.code == 70
    assert done.err.startswith("error: ZeroDivisionError: one two\n")
    assert "please report" in done.err
    assert "Traceback" not in done.err


def test_a_flag_or_the_environment_shows_where_it_came_from(cli, broken, monkeypatch):
    monkeypatch.setenv("REWEIGH_TRACEBACK", "0")
    assert "Traceback" not in cli(*broken).err
    assert "fail" in cli("--traceback", *broken).err
    monkeypatch.setenv("REWEIGH_TRACEBACK", "1")
    assert "fail" in cli(*broken).err
    assert "ArtifactError" in cli("table", "show", "no-such-folder").err


def test_what_the_system_refuses_is_not_a_bug(cli, monkeypatch):
    def refused(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr(common.Loading, "load", refused)
    done = cli("doctor", "model")
    assert (done.code, done.err) == (1, "error: /some/file: Permission denied\n")


SLOW = """
import sys, time
from reweigh import ReferenceTable
from reweigh.cli import start
def load(*_, **__):
    print("loading", flush=True)
    time.sleep(60)
    sys.exit()
ReferenceTable.from_pretrained = load
sys.argv = ["reweigh", "table", "show", "anything"]
start.main()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_signals_end_like_control_c(tmp_path, name):
    number = getattr(signal, name)
    # a background job ignores some of them, and its children inherit that
    reset = f"import signal\nsignal.signal({number:d}, signal.{'default_int_handler' if name == 'SIGINT' else 'SIG_DFL'})\n"
    running = subprocess.Popen(
        [sys.executable, "-c", reset + SLOW],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert running.stdout.readline() == "loading\n"
    running.send_signal(number)
    _, told = running.communicate(timeout=120)
    assert running.returncode == 128 + number
    assert told.startswith("stopped")
    assert told.count("\n") == 1


def test_a_hang_up_that_is_ignored_on_purpose_stays_ignored(tmp_path):
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + SLOW.replace("60", "1")
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout.readline() == "loading\n"
    running.send_signal(signal.SIGHUP)
    _, told = running.communicate(timeout=120)
    assert "stopped" not in told


def test_an_error_in_its_own_process_names_what_the_terminal_cannot_show(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    done = subprocess.run(
        [sys.executable, "-m", "reweigh", "table", "show", path], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: ")
    assert b"caf\\udce9" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_pipe_is_wide_and_a_user_may_say_how_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert common.console().width == common.PIPE_WIDTH
    monkeypatch.setenv("COLUMNS", "70")
    assert common.console().width == 70


IMPORTS = """
import importlib.abc, sys, time
from reweigh.cli import start
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[-1]:
            print("importing", flush=True)
            try:
                time.sleep(60)
            except BaseException as error:  # as compiled modules do
                raise ImportError("damaged") from None
sys.meta_path.insert(0, Slow())
wanted, sys.argv = sys.argv[1], ["reweigh", *sys.argv[2:], sys.argv[1]]
start.main()
"""


@pytest.mark.parametrize("wanted", ["typer", "reweigh.cli.table", "reweigh.tables.table"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_during_an_import_ends_with_its_code_and_a_message(tmp_path, name, wanted):
    """Wherever start-up is: an exception raised into an import could come out as another one, or not at all."""
    heeded = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
    running = subprocess.Popen(
        [sys.executable, "-c", heeded + IMPORTS, wanted, "table", "show"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert running.stdout.readline() == "importing\n"
    running.send_signal(getattr(signal, name))
    _, told = running.communicate(timeout=120)
    assert (running.returncode, told) == (
        128 + getattr(signal, name),
        "stopped; run the same command again to resume\n",
    )


def test_a_signal_that_python_would_ignore_ends_the_command(tmp_path):
    """What is raised in a destructor is only printed."""
    code = SLOW.replace("time.sleep(60)", "Sleeping()").replace(
        "def load",
        "class Sleeping:\n    def __del__(self):\n        print('deep', flush=True); time.sleep(60)\ndef load",
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert [running.stdout.readline() for _ in range(2)] == ["loading\n", "deep\n"]
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=120)
    assert running.returncode == 143
    assert told.startswith("stopped")


def test_handlers_are_put_back(cli):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    hook = sys.unraisablehook
    cli("--version")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    assert sys.unraisablehook is hook
