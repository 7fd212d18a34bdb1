"""Commands run as a user runs them, in this process; a checkpoint is loaded once."""

from __future__ import annotations

import functools
import importlib
import json
import shutil
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from checkpoints import picture
from once import make_once
from reweigh.cli import start

loading = importlib.import_module("reweigh.families.load")  # the package has a function of that name


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@functools.cache
def load_once(name, **options):
    return REAL_LOAD(name, **options)


REAL_LOAD = loading.load


@pytest.fixture
def cli(monkeypatch, capsys):
    """``cli("describe", model, image, ...)``."""
    monkeypatch.setattr(loading, "load", load_once)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["reweigh", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            start.main()
        shown = capsys.readouterr()
        return Done(ended.value.code or 0, shown.out, shown.err)

    return run


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder of pictures, one of them broken."""

    def take(folder):
        for number in range(8):
            picture(number, (60, 50)).save(folder / f"{number}.png")
        (folder / "broken.png").write_bytes(b"no image")

    return make_once(tmp_path_factory, "photos", take)


@pytest.fixture(scope="session")
def calibrated(tmp_path_factory, checkpoint, photos):
    """A calibration folder of two layers, made with the command."""
    given = ["-l", "1", "-l", "3", "--max-new-tokens", "8"]

    def calibrate(folder):
        arguments = ["calibrate", checkpoint("llava"), photos, "-o", folder / "out", *given]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loading, "load", load_once)
            patch.setattr(sys, "argv", ["reweigh", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                start.main()
        assert not ended.value.code

    # Tests lock and resume it: every worker has a copy.
    made = make_once(tmp_path_factory, "calibrated", calibrate) / "out"
    return shutil.copytree(made, tmp_path_factory.mktemp("calibrated") / "out")
