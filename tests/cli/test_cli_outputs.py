"""No command replaces a file of the user's: every file that one writes is planted, and must survive byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from reweigh.cli import app, common
from reweigh.files.outputs import RECORD
from reweigh.world.scenes import scenes

SHORT = ["--option", "scenes=3", "--limit", "3"]
COMMANDS: dict[str, list[str]] = {
    "eval run": ["eval", "run", "world", "-b", "world", "--data", "{place}/data", "-o", "{out}", *SHORT],
    "eval score": [
        "eval",
        "score",
        "{place}/rows.jsonl",
        "--allow-missing",
        "-b",
        "world",
        "--data",
        "{place}/data",
        "-o",
        "{out}",
    ],
    "eval diff": ["eval", "diff", "{place}/run", "{place}/run", "-o", "{out}/page.html"],
    "compare": ["compare", "world", "-m", "base,reweigh", "-o", "{out}", *SHORT],
    "tune": ["tune", "world", "--layers", "2", "--betas", "1", "-o", "{out}", *SHORT],
    "ablate": ["ablate", "world", "--arms", "blind", "-o", "{out}", *SHORT],
    "compare with directions": [
        *("compare", "world", "-m", "base,asd,projectaway", "-o", "{out}", *SHORT, "--tuning-limit", "12"),
    ],
    "study": ["study", "scale", "world", "--paper", "-o", "{out}", *SHORT],
    "describe": ["describe", "world", "{place}/scene.png", "--why", "--plot", "{out}/step.svg"],
    "demo": ["demo", "--quick", "--scenes", "10", "-o", "{out}/report.html"],
    "world draw": ["world", "draw", "--count", "2", "--boxes", "-o", "{out}"],
}
LATER = ("runs", "answers", "world", "corpus")
"""Folders below the output whose files are looked at once the model is loaded; the others are before."""
MINE = b'{"mine": 1'
"""Not a whole line, so that a careless reader of rows would cut it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run and a picture that the commands need."""
    folder = tmp_path_factory.mktemp("outputs")
    next(iter(scenes("evaluation", 1, 0))).image().save(folder / "scene.png")
    return folder


@pytest.fixture
def run(cli: Any, place: Path) -> Any:
    """Run one of the commands into a folder."""

    def run(name: str, out: Path) -> Any:
        if not (place / "run").exists() and name in ("eval score", "eval diff"):
            assert run("eval run", place / "run").code == 0
            shutil.copy(place / "run" / "rows.jsonl", place)
        return cli(*(part.format(out=out, place=place) for part in COMMANDS[name]))

    return run


def files(out: Path) -> dict[str, bytes]:
    """Every file but pictures and data; of many shards the first."""
    found = {}
    for path in sorted(out.rglob("*")):
        kept = {"pictures", "data"} & {*path.relative_to(out).parts}
        if "shard-" in path.name and path.name != "shard-00000.safetensors":
            continue
        if path.is_file() and not kept and path.name not in (".lock", RECORD) and path.suffix != ".png":
            found[str(path.relative_to(out))] = path.read_bytes()
    return found


def test_every_command_that_has_an_output_is_tested() -> None:
    """Those that are not have tests of their own: they refuse a folder that holds anything else."""
    from typer.main import get_command

    def leaves(command: Any, name: str = "") -> dict[str, Any]:
        below = (
            {one: command.get_command(None, one) for one in command.list_commands(None)}
            if hasattr(command, "list_commands")
            else {}
        )
        found = {} if below else {name: command}
        for one, inner in below.items():
            found |= leaves(inner, f"{name} {one}".strip())
        return found

    writing = {
        name
        for name, command in leaves(get_command(app.app)).items()
        if {"--out", "--plot"} & {flag for one in command.params for flag in one.opts}
    }
    others = {"calibrate", "table merge", "table register", "table export", "reproduce"}
    assert writing - others == {*COMMANDS} - {"compare with directions"}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_users_file_under_an_output_name_survives(
    name: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first run, and in place of an output that was written; our own outputs are replaced freely."""
    whole = tmp_path / "whole"
    first = run(name, whole)
    assert first.code == 0, first.err
    again = run(name, whole)
    assert again.code == 0, again.err
    outputs = files(whole)
    assert outputs
    for fresh in (True, False):
        for file in outputs:
            if fresh and file.startswith(
                "corpus/evaluation"
            ):  # comes after 500 calibration images are described
                continue
            out = tmp_path / ("fresh" if fresh else "there")
            shutil.rmtree(out, ignore_errors=True)
            if not fresh:
                shutil.copytree(whole, out)
            (out / file).parent.mkdir(parents=True, exist_ok=True)
            (out / file).write_bytes(MINE)
            with monkeypatch.context() as patch:
                if not {*Path(file).parts[:-1]} & {*LATER} and name != "demo":
                    patch.setattr(common.Loading, "load", loads)
                done = run(name, out)
            # a finished study does not read its shards again, finished directions not their answers
            if "shard-" not in file and (fresh or not file.startswith("steering/answers")):
                assert done.code == 1, (file, done.out, done.err)
                assert Path(file).name in done.err, (file, done.err)
            assert (out / file).read_bytes() == MINE, file
            left = files(out)
            kept = {} if fresh else outputs
            assert {one: text for one, text in left.items() if one in kept and one != file} == {
                one: text for one, text in kept.items() if one != file
            }, file


def loads(*_arguments: Any, **_options: Any) -> Any:
    raise AssertionError("a model was loaded before the outputs were looked at")
